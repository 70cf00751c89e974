// a2a-java 0.3 as a client, `java -cp LIB Script.java SERVER BINDING`, and as a server, `java -cp LIB Script.java BINDING`.

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import io.a2a.A2A;
import io.a2a.client.Client;
import io.a2a.client.ClientEvent;
import io.a2a.client.TaskEvent;
import io.a2a.client.TaskUpdateEvent;
import io.a2a.client.config.ClientConfig;
import io.a2a.client.transport.jsonrpc.JSONRPCTransport;
import io.a2a.client.transport.jsonrpc.JSONRPCTransportConfig;
import io.a2a.client.transport.rest.RestTransport;
import io.a2a.client.transport.rest.RestTransportConfig;
import io.a2a.server.ServerCallContext;
import io.a2a.server.agentexecution.AgentExecutor;
import io.a2a.server.agentexecution.RequestContext;
import io.a2a.server.auth.UnauthenticatedUser;
import io.a2a.server.events.EventQueue;
import io.a2a.server.events.InMemoryQueueManager;
import io.a2a.server.requesthandlers.DefaultRequestHandler;
import io.a2a.server.tasks.InMemoryTaskStore;
import io.a2a.server.tasks.TaskUpdater;
import io.a2a.spec.AgentCapabilities;
import io.a2a.spec.AgentCard;
import io.a2a.spec.AgentSkill;
import io.a2a.spec.Artifact;
import io.a2a.spec.CancelTaskRequest;
import io.a2a.spec.DeleteTaskPushNotificationConfigParams;
import io.a2a.spec.GetTaskPushNotificationConfigParams;
import io.a2a.spec.GetTaskRequest;
import io.a2a.spec.JSONRPCResponse;
import io.a2a.spec.ListTaskPushNotificationConfigParams;
import io.a2a.spec.Message;
import io.a2a.spec.PushNotificationConfig;
import io.a2a.spec.SendMessageRequest;
import io.a2a.spec.SendStreamingMessageRequest;
import io.a2a.spec.Task;
import io.a2a.spec.TaskArtifactUpdateEvent;
import io.a2a.spec.TaskIdParams;
import io.a2a.spec.TaskPushNotificationConfig;
import io.a2a.spec.TaskQueryParams;
import io.a2a.spec.TaskResubscriptionRequest;
import io.a2a.spec.TaskState;
import io.a2a.spec.TextPart;
import io.a2a.transport.jsonrpc.handler.JSONRPCHandler;
import io.a2a.transport.rest.handler.RestHandler;
import io.a2a.util.Utils;
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
                    if (e.getUpdateEvent() instanceof TaskArtifactUpdateEvent u) pieces.add(text(List.of(u.getArtifact())));
                }
                if (task == null) throw new Exception("no task: " + event);
                if (List.of(states).contains(task.getStatus().state())) return task;
            }
        }
    }

    static Talk talk(String agent, boolean streaming, boolean polling) throws Exception {
        BlockingQueue<Object> events = new LinkedBlockingQueue<>();
        var builder = Client.builder(A2A.getAgentCard(server, "/" + agent + "/.well-known/agent-card.json", Map.of()))
            .clientConfig(new ClientConfig.Builder().setStreaming(streaming).setPolling(polling).setUseClientPreference(true).build())
            .addConsumer((ClientEvent e, io.a2a.spec.AgentCard c) -> events.add(e)).streamingErrorHandler(t -> { if (t != null) events.add(t); });
        Client client = binding.equals("JSONRPC")
            ? builder.withTransport(JSONRPCTransport.class, new JSONRPCTransportConfig()).build()
            : builder.withTransport(RestTransport.class, new RestTransportConfig()).build();
        return new Talk(client, events);
    }

    static String text(List<Artifact> artifacts) {
        StringBuilder all = new StringBuilder();
        for (Artifact a : artifacts == null ? List.<Artifact>of() : artifacts) for (var p : a.parts()) if (p instanceof TextPart t) all.append(t.getText());
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
        var builder = new Message.Builder().role(Message.Role.USER).messageId(java.util.UUID.randomUUID().toString()).parts(new TextPart(text));
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
            Task t = send(talk("relay", false, false), TIDES, null, TaskState.COMPLETED);
            want(text(t.getArtifacts()).equals(TIDES), t);
        });
        STEPS.put("stream", () -> {
            Talk talk = talk("echo", true, false);
            List<String> pieces = new ArrayList<>();
            talk.client.sendMessage(message(TIDES, null));
            Task t = talk.end(pieces, TaskState.COMPLETED);
            want(pieces.size() > 3 && String.join("", pieces).equals(TIDES) && text(t.getArtifacts()).equals(TIDES), pieces + " " + t);
        });
        STEPS.put("get", () -> {
            Talk talk = talk("relay", false, false);
            Task t = send(talk, TIDES, null, TaskState.COMPLETED);
            want(text(talk.client.getTask(new TaskQueryParams(t.getId())).getArtifacts()).equals(TIDES), t);
        });
        STEPS.put("cancel", () -> {
            Talk talk = talk("bureau", false, true);
            Task t = send(talk, TIDES, null, TaskState.SUBMITTED, TaskState.WORKING);
            want(talk.client.cancelTask(new TaskIdParams(t.getId())).getStatus().state() == TaskState.CANCELED, t);
        });
        STEPS.put("question", () -> {
            Talk talk = talk("desk", false, false);
            Task asked = send(talk, "High tide", null, TaskState.INPUT_REQUIRED);
            Task t = send(talk, "Brest", asked.getId(), TaskState.COMPLETED);
            want(text(t.getArtifacts()).contains("in Brest"), t);
        });
        STEPS.put("subscribe", () -> {
            Talk talk = talk("bureau", false, true);
            Task t = send(talk, TIDES, null, TaskState.SUBMITTED, TaskState.WORKING);
            Talk other = talk("bureau", true, false);
            other.client.resubscribe(new TaskIdParams(t.getId()));
            other.end(new ArrayList<>(), TaskState.SUBMITTED, TaskState.WORKING);
            talk.client.cancelTask(new TaskIdParams(t.getId()));
            want(other.end(new ArrayList<>(), TaskState.CANCELED) != null, t);
        });
        STEPS.put("push", () -> {
            Talk talk = talk("relay", false, false);
            String id = send(talk, TIDES, null, TaskState.COMPLETED).getId();
            var config = new PushNotificationConfig.Builder().id("hook").url("http://127.0.0.1:9/hook").build();
            talk.client.setTaskPushNotificationConfiguration(new TaskPushNotificationConfig(id, config));
            var got = talk.client.getTaskPushNotificationConfiguration(new GetTaskPushNotificationConfigParams(id, "hook"));
            want(got.pushNotificationConfig().url().equals(config.url()), got);
            want(talk.client.listTaskPushNotificationConfigurations(new ListTaskPushNotificationConfigParams(id)).size() == 1, id);
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
            var config = new PushNotificationConfig.Builder().url(url).token("secret-of-the-hook").build();
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
            refused(() -> talk.client.cancelTask(new TaskIdParams(UNKNOWN)));
            refused(() -> talk.client.sendMessage(message(TIDES, UNKNOWN)));
        });
        STEPS.put("ended", () -> {
            Talk talk = talk("relay", false, false);
            Task t = send(talk, TIDES, null, TaskState.COMPLETED);
            refused(() -> talk.client.cancelTask(new TaskIdParams(t.getId())));
            refused(() -> talk.client.sendMessage(message(TIDES, t.getId())));
        });
    }

    static final Map<String, String> LACKS = Map.of(
        "list", "A2A 0.3 lists no tasks over JSON-RPC and HTTP, and the client has no call for it.");

    public static void main(String[] args) throws Exception {
        if (args.length == 1) {
            new Agent(args[0]).serve();
            return;
        }
        server = args[0];
        binding = args[1];
        for (String name : List.of("card", "send", "stream", "get", "list", "cancel", "subscribe", "question", "push", "receive", "unknown", "ended")) {
            String why = "";
            if (LACKS.containsKey(name)) {
                why = ", \"lacks\": " + quoted(LACKS.get(name));
            } else {
                try {
                    STEPS.get(name).play();
                } catch (Throwable e) {
                    StringWriter trace = new StringWriter();
                    e.printStackTrace(new PrintWriter(trace));
                    why = ", \"error\": " + quoted(trace.toString());
                }
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
    public void execute(RequestContext context, EventQueue events) {
        TaskUpdater emitter = new TaskUpdater(context, events);
        boolean asked = context.getTask() != null;
        String text = context.getUserInput("");
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
    public void cancel(RequestContext context, EventQueue events) {
        new TaskUpdater(context, events).cancel();
        waiting.computeIfAbsent(context.getTaskId(), id -> new CountDownLatch(1)).countDown();
    }

    void serve() throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
        String url = "http://127.0.0.1:" + server.getAddress().getPort();
        AgentCard card = new AgentCard.Builder().name("peer").description("Echoes.").version("1").protocolVersion("0.3.0")
            .url(url).preferredTransport(binding).capabilities(new AgentCapabilities.Builder().streaming(true).build())
            .defaultInputModes(List.of("text/plain")).defaultOutputModes(List.of("text/plain"))
            .skills(List.of(new AgentSkill.Builder().id("echo").name("echo").description("Echoes.").tags(List.of("echo")).build())).build();
        Executor executor = Executors.newCachedThreadPool();
        InMemoryTaskStore store = new InMemoryTaskStore();
        var handler = DefaultRequestHandler.create(this, store, new InMemoryQueueManager(store), null, null, executor);
        System.setProperty("io.a2a.transport.skipValidation", "true"); // it looks for the transports of Quarkus
        rest = new RestHandler(card, handler, executor);
        rpc = new JSONRPCHandler(card, handler, executor);
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
        var context = new ServerCallContext(UnauthenticatedUser.INSTANCE, Map.of(), Set.of());
        try (exchange) {
            if (path.endsWith(".json")) reply(exchange, 200, "application/json", Utils.toJsonString(card));
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
            case "send" -> rest.sendMessage(body, context);
            case "stream" -> rest.sendStreamingMessage(body, context);
            case "cancel" -> rest.cancelTask(call[0], context);
            case "subscribe" -> rest.resubscribeTask(call[0], context);
            default -> rest.getTask(call[0], 0, context);
        };
        if (r instanceof RestHandler.HTTPRestStreamingResponse s) stream(exchange, s.getPublisher(), event -> "data: " + event + "\n\n");
        else reply(exchange, r.getStatusCode(), r.getContentType(), r.getBody());
    }

    void callRPC(HttpExchange exchange, ServerCallContext context, String body) throws Exception {
        String method = Utils.OBJECT_MAPPER.readTree(body).get("method").asText();
        if (method.equals(SendStreamingMessageRequest.METHOD)) {
            stream(exchange, rpc.onMessageSendStream(Utils.OBJECT_MAPPER.readValue(body, SendStreamingMessageRequest.class), context), Agent::event);
        } else if (method.equals(TaskResubscriptionRequest.METHOD)) {
            stream(exchange, rpc.onResubscribeToTask(Utils.OBJECT_MAPPER.readValue(body, TaskResubscriptionRequest.class), context), Agent::event);
        } else {
            JSONRPCResponse<?> response = switch (method) {
                case SendMessageRequest.METHOD -> rpc.onMessageSend(Utils.OBJECT_MAPPER.readValue(body, SendMessageRequest.class), context);
                case CancelTaskRequest.METHOD -> rpc.onCancelTask(Utils.OBJECT_MAPPER.readValue(body, CancelTaskRequest.class), context);
                default -> rpc.onGetTask(Utils.OBJECT_MAPPER.readValue(body, GetTaskRequest.class), context);
            };
            reply(exchange, 200, "application/json", Utils.toJsonString(response));
        }
    }

    static String event(JSONRPCResponse<?> response) { return "data: " + Utils.toJsonString(response) + "\n\n"; }

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
