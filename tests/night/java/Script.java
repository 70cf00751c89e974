// a2a-java 1 as a client, `java -cp LIB Script.java SERVER BINDING`, and as a server, `java -cp LIB Script.java BINDING`.

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import io.grpc.Context;
import io.grpc.Contexts;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.util.MutableHandlerRegistry;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executor;
import java.util.concurrent.Executors;
import java.util.concurrent.Flow;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.a2aproject.sdk.A2A;
import org.a2aproject.sdk.client.Client;
import org.a2aproject.sdk.client.ClientEvent;
import org.a2aproject.sdk.client.TaskEvent;
import org.a2aproject.sdk.client.TaskUpdateEvent;
import org.a2aproject.sdk.client.config.ClientConfig;
import org.a2aproject.sdk.client.transport.grpc.GrpcTransport;
import org.a2aproject.sdk.client.transport.grpc.GrpcTransportConfig;
import org.a2aproject.sdk.client.transport.jsonrpc.JSONRPCTransport;
import org.a2aproject.sdk.client.transport.jsonrpc.JSONRPCTransportConfig;
import org.a2aproject.sdk.client.transport.rest.RestTransport;
import org.a2aproject.sdk.client.transport.rest.RestTransportConfig;
import org.a2aproject.sdk.grpc.utils.JSONRPCUtils;
import org.a2aproject.sdk.grpc.utils.ProtoUtils;
import org.a2aproject.sdk.jsonrpc.common.json.JsonUtil;
import org.a2aproject.sdk.jsonrpc.common.wrappers.A2ARequest;
import org.a2aproject.sdk.jsonrpc.common.wrappers.A2AResponse;
import org.a2aproject.sdk.jsonrpc.common.wrappers.CancelTaskRequest;
import org.a2aproject.sdk.jsonrpc.common.wrappers.GetTaskRequest;
import org.a2aproject.sdk.jsonrpc.common.wrappers.SendMessageRequest;
import org.a2aproject.sdk.jsonrpc.common.wrappers.SendStreamingMessageRequest;
import org.a2aproject.sdk.jsonrpc.common.wrappers.SubscribeToTaskRequest;
import org.a2aproject.sdk.server.ServerCallContext;
import org.a2aproject.sdk.server.agentexecution.AgentExecutor;
import org.a2aproject.sdk.server.agentexecution.RequestContext;
import org.a2aproject.sdk.server.auth.UnauthenticatedUser;
import org.a2aproject.sdk.server.events.InMemoryQueueManager;
import org.a2aproject.sdk.server.events.MainEventBus;
import org.a2aproject.sdk.server.events.MainEventBusProcessor;
import org.a2aproject.sdk.server.requesthandlers.DefaultRequestHandler;
import org.a2aproject.sdk.server.requesthandlers.RequestHandler;
import org.a2aproject.sdk.server.tasks.AgentEmitter;
import org.a2aproject.sdk.server.tasks.InMemoryTaskStore;
import org.a2aproject.sdk.server.util.sse.SseFormatter;
import org.a2aproject.sdk.spec.AgentCapabilities;
import org.a2aproject.sdk.spec.AgentCard;
import org.a2aproject.sdk.spec.AgentInterface;
import org.a2aproject.sdk.spec.AgentSkill;
import org.a2aproject.sdk.spec.Artifact;
import org.a2aproject.sdk.spec.CancelTaskParams;
import org.a2aproject.sdk.spec.DeleteTaskPushNotificationConfigParams;
import org.a2aproject.sdk.spec.GetTaskPushNotificationConfigParams;
import org.a2aproject.sdk.spec.ListTaskPushNotificationConfigsParams;
import org.a2aproject.sdk.spec.ListTasksParams;
import org.a2aproject.sdk.spec.Message;
import org.a2aproject.sdk.spec.Task;
import org.a2aproject.sdk.spec.TaskArtifactUpdateEvent;
import org.a2aproject.sdk.spec.TaskIdParams;
import org.a2aproject.sdk.spec.TaskPushNotificationConfig;
import org.a2aproject.sdk.spec.TaskQueryParams;
import org.a2aproject.sdk.spec.TaskState;
import org.a2aproject.sdk.spec.TextPart;
import org.a2aproject.sdk.transport.grpc.context.GrpcContextKeys;
import org.a2aproject.sdk.transport.grpc.handler.CallContextFactory;
import org.a2aproject.sdk.transport.grpc.handler.GrpcHandler;
import org.a2aproject.sdk.transport.jsonrpc.handler.JSONRPCHandler;
import org.a2aproject.sdk.transport.rest.handler.RestHandler;

public class Script {
    static final String TIDES = "high and low tide";
    static final String UNKNOWN = "00000000-0000-7000-8000-000000000000";
    static String server, binding;

    interface Step { void play() throws Exception; }

    record Talk(Client client, BlockingQueue<Object> events) {
        /** end reads events until a task that has a state of these, and returns it. */
        Task end(List<String> pieces, TaskState... states) throws Exception {
            while (true) {
                Object event = events.poll(20, TimeUnit.SECONDS);
                if (event instanceof Throwable t) throw new Exception(t);
                Task task = null;
                if (event instanceof TaskEvent e) task = e.getTask();
                if (event instanceof TaskUpdateEvent e) {
                    task = e.getTask();
                    if (e.getUpdateEvent() instanceof TaskArtifactUpdateEvent u) pieces.add(text(List.of(u.artifact())));
                }
                if (task == null) throw new Exception("no task: " + event);
                if (List.of(states).contains(task.status().state())) return task;
            }
        }
    }

    static Talk talk(String agent, boolean streaming, boolean polling) throws Exception {
        BlockingQueue<Object> events = new LinkedBlockingQueue<>();
        var builder = Client.builder(A2A.getAgentCard(server, "/" + agent + "/.well-known/agent-card.json", Map.of()))
            .clientConfig(ClientConfig.builder().setStreaming(streaming).setPolling(polling).setUseClientPreference(true).build())
            .addConsumer((ClientEvent e, org.a2aproject.sdk.spec.AgentCard c) -> events.add(e)).streamingErrorHandler(t -> { if (t != null) events.add(t); });
        Client client = switch (binding) {
            case "JSONRPC" -> builder.withTransport(JSONRPCTransport.class, new JSONRPCTransportConfig()).build();
            case "GRPC" -> builder.withTransport(GrpcTransport.class, new GrpcTransportConfig(at -> ManagedChannelBuilder.forTarget(at).usePlaintext().build())).build();
            default -> builder.withTransport(RestTransport.class, new RestTransportConfig()).build();
        };
        return new Talk(client, events);
    }

    static String text(List<Artifact> artifacts) {
        StringBuilder all = new StringBuilder();
        for (Artifact a : artifacts == null ? List.<Artifact>of() : artifacts) for (var p : a.parts()) if (p instanceof TextPart t) all.append(t.text());
        return all.toString();
    }

    static void want(boolean ok, Object got) throws Exception {
        if (!ok) throw new Exception(String.valueOf(got));
    }

    static void refused(Step call) throws Exception {
        try { call.play(); } catch (Exception e) { return; }
        throw new Exception("it is not refused");
    }

    static Message message(String text, String task) {
        var builder = Message.builder().role(Message.Role.ROLE_USER).messageId(java.util.UUID.randomUUID().toString()).parts(new TextPart(text));
        return (task == null ? builder : builder.taskId(task)).build();
    }

    static Task send(Talk t, String text, String task, TaskState... states) throws Exception {
        t.client.sendMessage(message(text, task));
        return t.end(new ArrayList<>(), states);
    }

    static final Map<String, Step> STEPS = new HashMap<>();

    static {
        STEPS.put("card", () -> want(A2A.getAgentCard(server, "/relay/.well-known/agent-card.json", Map.of()).name().equals("relay"), "another name"));
        STEPS.put("send", () -> {
            Task t = send(talk("relay", false, false), TIDES, null, TaskState.TASK_STATE_COMPLETED);
            want(text(t.artifacts()).equals(TIDES), t);
        });
        STEPS.put("stream", () -> {
            Talk talk = talk("echo", true, false);
            List<String> pieces = new ArrayList<>();
            talk.client.sendMessage(message(TIDES, null));
            Task t = talk.end(pieces, TaskState.TASK_STATE_COMPLETED);
            want(pieces.size() > 3 && String.join("", pieces).equals(TIDES) && text(t.artifacts()).equals(TIDES), pieces + " " + t);
        });
        STEPS.put("get", () -> {
            Talk talk = talk("relay", false, false);
            Task t = send(talk, TIDES, null, TaskState.TASK_STATE_COMPLETED);
            want(text(talk.client.getTask(new TaskQueryParams(t.id())).artifacts()).equals(TIDES), t);
        });
        STEPS.put("list", () -> {
            Talk talk = talk("relay", false, false);
            Task first = send(talk, TIDES, null, TaskState.TASK_STATE_COMPLETED);
            talk.client.sendMessage(Message.builder(message(TIDES, null)).contextId(first.contextId()).build());
            talk.end(new ArrayList<>(), TaskState.TASK_STATE_COMPLETED);
            var page = talk.client.listTasks(ListTasksParams.builder().contextId(first.contextId()).pageSize(1).tenant("").build());
            var next = talk.client.listTasks(ListTasksParams.builder().contextId(first.contextId()).pageSize(1).pageToken(page.nextPageToken()).tenant("").build());
            want(page.tasks().size() == 1 && next.tasks().size() == 1 && next.tasks().get(0).id().equals(first.id()), page + " " + next);
        });
        STEPS.put("cancel", () -> {
            Talk talk = talk("bureau", false, true);
            Task t = send(talk, TIDES, null, TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING);
            want(talk.client.cancelTask(new CancelTaskParams(t.id())).status().state() == TaskState.TASK_STATE_CANCELED, t);
        });
        STEPS.put("question", () -> {
            Talk talk = talk("desk", false, false);
            Task asked = send(talk, "High tide", null, TaskState.TASK_STATE_INPUT_REQUIRED);
            Task t = send(talk, "Brest", asked.id(), TaskState.TASK_STATE_COMPLETED);
            want(text(t.artifacts()).contains("in Brest"), t);
        });
        STEPS.put("subscribe", () -> {
            Talk talk = talk("bureau", false, true);
            Task t = send(talk, TIDES, null, TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING);
            Talk other = talk("bureau", true, false);
            other.client.subscribeToTask(new TaskIdParams(t.id()));
            other.end(new ArrayList<>(), TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING);
            talk.client.cancelTask(new CancelTaskParams(t.id()));
            want(other.end(new ArrayList<>(), TaskState.TASK_STATE_CANCELED) != null, t);
        });
        STEPS.put("push", () -> {
            Talk talk = talk("relay", false, false);
            String id = send(talk, TIDES, null, TaskState.TASK_STATE_COMPLETED).id();
            var config = TaskPushNotificationConfig.builder().id("hook").taskId(id).url("http://127.0.0.1:9/hook").build();
            talk.client.createTaskPushNotificationConfiguration(config);
            var got = talk.client.getTaskPushNotificationConfiguration(new GetTaskPushNotificationConfigParams(id, "hook"));
            want(got.url().equals(config.url()), got);
            want(talk.client.listTaskPushNotificationConfigurations(new ListTaskPushNotificationConfigsParams(id)).configs().size() == 1, id);
            talk.client.deleteTaskPushNotificationConfigurations(new DeleteTaskPushNotificationConfigParams(id, "hook"));
        });
        STEPS.put("receive", () -> {
            BlockingQueue<String> received = new LinkedBlockingQueue<>();
            HttpServer hook = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
            hook.createContext("/", exchange -> {
                received.add(exchange.getRequestHeaders().getFirst("X-A2A-Notification-Token") + " " + new String(exchange.getRequestBody().readAllBytes()));
                exchange.sendResponseHeaders(200, -1);
                exchange.close();
            });
            hook.start();
            String url = "http://127.0.0.1:" + hook.getAddress().getPort();
            var config = TaskPushNotificationConfig.builder().id("hook").url(url).token("secret-of-the-hook").build();
            talk("relay", false, false).client.sendMessage(message(TIDES, null), config, Map.of(), null);
            for (String body = ""; !body.contains("completed") && !body.contains("COMPLETED"); want(body.startsWith("secret-of-the-hook "), body)) {
                body = received.poll(20, TimeUnit.SECONDS);
                want(body != null, "no notification");
            }
            hook.stop(0);
        });
        STEPS.put("unknown", () -> {
            Talk talk = talk("relay", false, false);
            refused(() -> talk.client.getTask(new TaskQueryParams(UNKNOWN)));
            refused(() -> talk.client.cancelTask(new CancelTaskParams(UNKNOWN)));
            refused(() -> talk.client.sendMessage(message(TIDES, UNKNOWN)));
        });
        STEPS.put("ended", () -> {
            Talk talk = talk("relay", false, false);
            Task t = send(talk, TIDES, null, TaskState.TASK_STATE_COMPLETED);
            refused(() -> talk.client.cancelTask(new CancelTaskParams(t.id())));
            refused(() -> talk.client.sendMessage(message(TIDES, t.id())));
        });
    }

    public static void main(String[] args) throws Exception {
        if (args.length == 1) {
            new Agent(args[0]).serve();
            return;
        }
        server = args[0];
        binding = args[1];
        for (String name : List.of("card", "send", "stream", "get", "list", "cancel", "subscribe", "question", "push", "receive", "unknown", "ended")) {
            String why = "";
            try {
                STEPS.get(name).play();
            } catch (Throwable e) {
                StringWriter trace = new StringWriter();
                e.printStackTrace(new PrintWriter(trace));
                why = ", \"error\": " + quoted(trace.toString());
            }
            System.out.println("{\"step\": \"" + name + "\"" + why + "}");
        }
        System.exit(0);
    }

    static String quoted(String text) {
        return "\"" + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n").replace("\t", " ").replace("\r", "") + "\"";
    }
}

/** Agent is an agent of the SDK behind the HTTP server of Java. */
class Agent implements AgentExecutor {
    final String binding;
    final Map<String, CountDownLatch> waiting = new ConcurrentHashMap<>();
    RestHandler rest;
    JSONRPCHandler rpc;

    Agent(String binding) { this.binding = binding; }

    @Override
    public void execute(RequestContext context, AgentEmitter emitter) {
        boolean asked = context.getTask() != null;
        String text = context.getUserInput();
        if (!asked) emitter.submit();
        emitter.startWork();
        switch (text) {
            case "ask" -> emitter.requiresInput(emitter.newAgentMessage(List.of(new TextPart("Which city?")), null));
            case "fail" -> emitter.fail(emitter.newAgentMessage(List.of(new TextPart("It is broken.")), null));
            case "wait" -> {
                try {
                    waiting.computeIfAbsent(context.getTaskId(), id -> new CountDownLatch(1)).await();
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                }
            }
            default -> {
                emitter.addArtifact(List.of(new TextPart("far: ")), "answer", "answer", null, false, false);
                emitter.addArtifact(List.of(new TextPart((asked ? "you said " : "") + text)), "answer", "answer", null, true, true);
                emitter.complete();
            }
        }
    }

    @Override
    public void cancel(RequestContext context, AgentEmitter emitter) {
        emitter.cancel();
        waiting.computeIfAbsent(context.getTaskId(), id -> new CountDownLatch(1)).countDown();
    }

    void serve() throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
        String url = "http://127.0.0.1:" + server.getAddress().getPort();
        var calls = new MutableHandlerRegistry();
        var grpc = NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", 0)).fallbackHandlerRegistry(calls).intercept(new Version()).build().start();
        AgentCard card = AgentCard.builder().name("peer").description("Echoes.").version("1")
            .capabilities(AgentCapabilities.builder().streaming(true).build())
            .defaultInputModes(List.of("text/plain")).defaultOutputModes(List.of("text/plain"))
            .skills(List.of(AgentSkill.builder().id("echo").name("echo").description("Echoes.").tags(List.of("echo")).build()))
            .supportedInterfaces(List.of(new AgentInterface(binding, binding.equals("GRPC") ? "127.0.0.1:" + grpc.getPort() : url))).build();
        Executor executor = Executors.newCachedThreadPool();
        InMemoryTaskStore store = new InMemoryTaskStore();
        MainEventBus bus = new MainEventBus();
        InMemoryQueueManager queues = new InMemoryQueueManager(store, bus);
        MainEventBusProcessor processor = new MainEventBusProcessor(bus, store, (event, task) -> {}, queues);
        new Thread(processor).start();
        var handler = DefaultRequestHandler.builder().agentExecutor(this).taskStore(store).queueManager(queues)
            .mainEventBusProcessor(processor).executor(executor).eventConsumerExecutor(executor).build();
        System.setProperty("org.a2aproject.sdk.transport.skipValidation", "true"); // it looks for the transports of Quarkus
        rest = new RestHandler(card, null, handler, executor);
        rpc = new JSONRPCHandler(card, handler, executor);
        calls.addService(new GrpcHandler() {
            @Override protected RequestHandler getRequestHandler() { return handler; }
            @Override protected AgentCard getAgentCard() { return card; }
            @Override protected AgentCard getExtendedAgentCard() { return null; }
            @Override protected CallContextFactory getCallContextFactory() { return null; }
            @Override protected Executor getExecutor() { return executor; }
        });
        server.setExecutor(executor);
        server.createContext("/", exchange -> answer(exchange, card));
        server.start();
        System.out.println("ready " + url);
        System.in.readAllBytes();
        System.exit(0);
    }

    /** answer routes a request. It answers 500 where the handlers of the SDK throw. */
    void answer(HttpExchange exchange, AgentCard card) throws IOException {
        String path = exchange.getRequestURI().getPath(), body = new String(exchange.getRequestBody().readAllBytes());
        var context = new ServerCallContext(UnauthenticatedUser.INSTANCE, Map.of(), Set.of(), exchange.getRequestHeaders().getFirst("A2A-Version"));
        try (exchange) {
            if (path.endsWith(".json")) reply(exchange, 200, "application/json", JsonUtil.toJson(card));
            else if (binding.equals("JSONRPC")) callRPC(exchange, context, body);
            else callREST(exchange, context, path, body);
        } catch (Exception e) {
            e.printStackTrace();
            exchange.sendResponseHeaders(500, -1);
        }
    }

    void callREST(HttpExchange exchange, ServerCallContext context, String path, String body) throws Exception {
        String[] call = path.substring(path.lastIndexOf('/') + 1).split(":");
        RestHandler.HTTPRestResponse r = switch (call.length == 1 ? "get" : call[1]) {
            case "send" -> rest.sendMessage(context, "", body);
            case "stream" -> rest.sendStreamingMessage(context, "", body);
            case "cancel" -> rest.cancelTask(context, "", body, call[0]);
            case "subscribe" -> rest.subscribeToTask(context, "", call[0]);
            default -> rest.getTask(context, "", call[0], null);
        };
        if (r instanceof RestHandler.HTTPRestStreamingResponse s) stream(exchange, s.getPublisher(), event -> SseFormatter.formatJsonAsSSE(event, 0));
        else reply(exchange, r.getStatusCode(), r.getContentType(), r.getBody());
    }

    void callRPC(HttpExchange exchange, ServerCallContext context, String body) throws Exception {
        A2ARequest<?> request = JSONRPCUtils.parseRequestBody(body, null);
        if (request instanceof SendStreamingMessageRequest r) {
            stream(exchange, rpc.onMessageSendStream(r, context), event -> SseFormatter.formatResponseAsSSE(event, 0));
        } else if (request instanceof SubscribeToTaskRequest r) {
            stream(exchange, rpc.onSubscribeToTask(r, context), event -> SseFormatter.formatResponseAsSSE(event, 0));
        } else if (request instanceof SendMessageRequest r) {
            var response = rpc.onMessageSend(r, context);
            reply(exchange, response, response.getError() != null ? null : ProtoUtils.ToProto.taskOrMessage(response.getResult()));
        } else if (request instanceof CancelTaskRequest r) {
            var response = rpc.onCancelTask(r, context);
            reply(exchange, response, response.getError() != null ? null : ProtoUtils.ToProto.task(response.getResult()));
        } else if (request instanceof GetTaskRequest r) {
            var response = rpc.onGetTask(r, context);
            reply(exchange, response, response.getError() != null ? null : ProtoUtils.ToProto.task(response.getResult()));
        } else {
            throw new IOException("unknown call: " + body);
        }
    }

    static void reply(HttpExchange exchange, A2AResponse<?> response, com.google.protobuf.Message result) throws IOException {
        reply(exchange, 200, "application/json", result == null
            ? JSONRPCUtils.toJsonRPCErrorResponse(response.getId(), response.getError()) : JSONRPCUtils.toJsonRPCResultResponse(response.getId(), result));
    }

    static void reply(HttpExchange exchange, int status, String type, String body) throws IOException {
        exchange.getResponseHeaders().set("Content-Type", type);
        byte[] bytes = body.getBytes();
        exchange.sendResponseHeaders(status, bytes.length == 0 ? -1 : bytes.length);
        exchange.getResponseBody().write(bytes);
    }

    /** stream sends events until the last one. */
    static <T> void stream(HttpExchange exchange, Flow.Publisher<T> events, Function<T, String> format) throws Exception {
        exchange.getResponseHeaders().set("Content-Type", "text/event-stream");
        exchange.sendResponseHeaders(200, 0);
        BlockingQueue<String> lines = new LinkedBlockingQueue<>();
        events.subscribe(new Flow.Subscriber<T>() {
            @Override public void onSubscribe(Flow.Subscription s) { s.request(Long.MAX_VALUE); }
            @Override public void onNext(T event) { lines.add(format.apply(event)); }
            @Override public void onError(Throwable t) { t.printStackTrace(); lines.add(""); }
            @Override public void onComplete() { lines.add(""); }
        });
        for (String line = lines.take(); !line.isEmpty(); line = lines.take()) {
            exchange.getResponseBody().write(line.getBytes());
            exchange.getResponseBody().flush();
        }
    }
}

/** Version tells the handler of gRPC the version that a call names. */
class Version implements ServerInterceptor {
    @Override
    public <Q, R> ServerCall.Listener<Q> interceptCall(ServerCall<Q, R> call, Metadata headers, ServerCallHandler<Q, R> next) {
        String version = headers.get(Metadata.Key.of("a2a-version", Metadata.ASCII_STRING_MARSHALLER));
        return Contexts.interceptCall(Context.current().withValue(GrpcContextKeys.VERSION_HEADER_KEY, version), call, headers, next);
    }
}
