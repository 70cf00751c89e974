#!/bin/sh
# io.github.a2asdk:a2a-java-sdk-client-transport-rest 0.3.3.Final, on a JDK 17; seen on Linux.
#
# The REST client pads the id of a push notification config to two characters (it formats the path with `%2s`): for the
# id `p` of the task `t` it asks for `/v1/tasks/t/pushNotificationConfigs/ p`. It refuses that URL itself, so a program can
# neither get nor delete a config with an id of one character, and the agent sees no request. With `p1` both are sent.
#
# Seen: "p: get Illegal character in path, delete Illegal character in path, 0 requests; p1: 2 requests".
#
# The script installs the package into a temporary folder, makes the calls to a server on loopback that counts requests,
# and fails if those for `p` are sent, or those for `p1` are not. It needs a JDK 17 or newer, and Maven.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId>
  <artifactId>finding</artifactId>
  <version>0</version>
  <dependencies>
    <dependency>
      <groupId>io.github.a2asdk</groupId>
      <artifactId>a2a-java-sdk-client-transport-rest</artifactId>
      <version>0.3.3.Final</version>
    </dependency>
  </dependencies>
</project>
XML
mvn -q -B dependency:copy-dependencies -DoutputDirectory=lib >mvn.log 2>&1 || { cat mvn.log; exit 1; }
cat >Run.java <<'JAVA'
import com.sun.net.httpserver.HttpServer;
import io.a2a.client.transport.rest.RestTransport;
import io.a2a.spec.AgentCapabilities;
import io.a2a.spec.AgentCard;
import io.a2a.spec.DeleteTaskPushNotificationConfigParams;
import io.a2a.spec.GetTaskPushNotificationConfigParams;
import java.net.InetSocketAddress;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;

public class Run {
    interface Call { void make() throws Exception; }

    static String refusal(Call call) throws Exception {
        try {
            call.make();
            return "made";
        } catch (Exception e) {
            String text = String.valueOf(e.getMessage());
            return text.startsWith("Illegal character in path") ? "Illegal character in path" : e.toString();
        }
    }

    public static void main(String[] args) throws Exception {
        AtomicInteger requests = new AtomicInteger();
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
        server.createContext("/", exchange -> {
            requests.incrementAndGet();
            exchange.sendResponseHeaders(404, -1);
            exchange.close();
        });
        server.start();
        String url = "http://127.0.0.1:" + server.getAddress().getPort();
        AgentCard card = new AgentCard.Builder().name("a").description("a").version("1").protocolVersion("0.3.0")
            .url(url).preferredTransport("HTTP+JSON").capabilities(new AgentCapabilities.Builder().build())
            .defaultInputModes(List.of("text/plain")).defaultOutputModes(List.of("text/plain")).skills(List.of()).build();
        RestTransport client = new RestTransport(card);
        String get = refusal(() -> client.getTaskPushNotificationConfiguration(new GetTaskPushNotificationConfigParams("t", "p"), null));
        String delete = refusal(() -> client.deleteTaskPushNotificationConfigurations(new DeleteTaskPushNotificationConfigParams("t", "p"), null));
        int padded = requests.get();
        refusal(() -> client.getTaskPushNotificationConfiguration(new GetTaskPushNotificationConfigParams("t", "p1"), null));
        refusal(() -> client.deleteTaskPushNotificationConfigurations(new DeleteTaskPushNotificationConfigParams("t", "p1"), null));
        int longer = requests.get() - padded;
        System.out.println("p: get " + get + ", delete " + delete + ", " + padded + " requests; p1: " + longer + " requests");
        server.stop(0);
        System.exit(padded == 0 && longer == 2 && get.equals(delete) && get.equals("Illegal character in path") ? 0 : 1);
    }
}
JAVA
java -cp 'lib/*' Run.java
