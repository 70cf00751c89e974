// a2a-java 0.3 as a client: `java -cp LIB Script.java SERVER BINDING`.

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
import io.a2a.spec.Artifact;
import io.a2a.spec.DeleteTaskPushNotificationConfigParams;
import io.a2a.spec.GetTaskPushNotificationConfigParams;
import io.a2a.spec.ListTaskPushNotificationConfigParams;
import io.a2a.spec.Message;
import io.a2a.spec.PushNotificationConfig;
import io.a2a.spec.Task;
import io.a2a.spec.TaskArtifactUpdateEvent;
import io.a2a.spec.TaskIdParams;
import io.a2a.spec.TaskPushNotificationConfig;
import io.a2a.spec.TaskQueryParams;
import io.a2a.spec.TaskState;
import io.a2a.spec.TextPart;
import com.sun.net.httpserver.HttpServer;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

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
                    if (e.getUpdateEvent() instanceof TaskArtifactUpdateEvent u) {
                        if (pieces.size() > 3 && !Boolean.TRUE.equals(u.isAppend())) pieces.replaceAll(p -> ""); // the last one is the whole text
                        pieces.add(text(List.of(u.getArtifact())));
                    }
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
            var config = new PushNotificationConfig.Builder().id("p").url("http://127.0.0.1:9/hook").build();
            talk.client.setTaskPushNotificationConfiguration(new TaskPushNotificationConfig(id, config));
            if (!binding.equals("JSONRPC")) return; // see BLANK
            var got = talk.client.getTaskPushNotificationConfiguration(new GetTaskPushNotificationConfigParams(id, "p"));
            want(got.pushNotificationConfig().url().equals(config.url()), got);
            want(talk.client.listTaskPushNotificationConfigurations(new ListTaskPushNotificationConfigParams(id)).size() == 1, id);
            talk.client.deleteTaskPushNotificationConfigurations(new DeleteTaskPushNotificationConfigParams(id, "p"));
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

    static final String BLANK = "The client sets one over HTTP, and cannot name one: it makes the path `/pushNotificationConfigs/ p`, with a blank, of the id `p`, and refuses that itself, `Illegal character in path`.";

    public static void main(String[] args) {
        server = args[0];
        binding = args[1];
        for (String name : List.of("card", "send", "stream", "get", "list", "cancel", "subscribe", "question", "push", "receive", "unknown", "ended")) {
            String why = name.equals("push") && !binding.equals("JSONRPC") ? ", \"partly\": " + quoted(BLANK) : "";
            if (LACKS.containsKey(name)) {
                why = ", \"lacks\": " + quoted(LACKS.get(name));
            } else {
                try {
                    STEPS.get(name).play();
                } catch (Throwable e) {
                    StringWriter trace = new StringWriter();
                    e.printStackTrace(new PrintWriter(trace));
                    why += ", \"error\": " + quoted(trace.toString());
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
