//! What the programs share: the steps of ../interoprig/matrix.go, on the JSON of the protocol.
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::{io::Read, time::Duration};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Sdk makes calls with the client of an SDK, as JSON.
#[async_trait::async_trait]
pub trait Sdk: Send + Sync {
    async fn card(&self, agent: &str) -> Result<Value, Failure>;
    async fn call(&self, agent: &str, method: &str, params: Value) -> Result<Value, Failure>;
    async fn stream(&self, agent: &str, method: &str, params: Value) -> Result<Vec<Value>, Failure>;
}

const TIDES: &str = "high and low tide";
const UNKNOWN: &str = "00000000-0000-7000-8000-000000000000";

/// of makes a message of the protocol from its JSON.
pub fn of<T: DeserializeOwned>(v: Value) -> T {
    serde_json::from_value(v).expect("a message of the protocol")
}

/// value makes the JSON of a message.
pub fn value(m: impl serde::Serialize) -> Result<Value, Failure> {
    Ok(serde_json::to_value(m)?)
}

fn want(ok: bool, got: &Value) -> Result<(), Failure> {
    if ok { Ok(()) } else { Err(got.to_string().into()) }
}

fn message(text: &str, task: Option<&str>, configuration: Value) -> Value {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let id = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let mut message = json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]});
    if let Some(task) = task {
        message["taskId"] = json!(task);
    }
    json!({"message": message, "configuration": configuration})
}

fn text(task: &Value) -> String {
    let all = |v: &Value, name| v[name].as_array().cloned().unwrap_or_default();
    all(task, "artifacts").iter().flat_map(|a| all(a, "parts")).filter_map(|p| p["text"].as_str().map(str::to_owned)).collect()
}

fn id(task: &Value) -> &str {
    task["id"].as_str().unwrap_or_default()
}

async fn send(sdk: &dyn Sdk, agent: &str, text: &str, task: Option<&str>, now: bool) -> Result<Value, Failure> {
    let got = sdk.call(agent, "SendMessage", message(text, task, json!({"returnImmediately": now}))).await?;
    want(got["task"]["id"].is_string(), &got)?;
    Ok(got["task"].clone())
}

async fn refused(sdk: &dyn Sdk, method: &str, params: Value) -> Result<(), Failure> {
    match sdk.call("relay", method, params).await {
        Err(_) => Ok(()),
        Ok(got) => Err(got.to_string().into()),
    }
}

async fn step(sdk: &dyn Sdk, name: &str) -> Result<(), Failure> {
    match name {
        "card" => {
            let card = sdk.card("relay").await?;
            want(card["name"] == "relay", &card)
        }
        "send" => {
            let t = send(sdk, "relay", TIDES, None, false).await?;
            want(t["status"]["state"] == "TASK_STATE_COMPLETED" && text(&t) == TIDES, &t)
        }
        "stream" => {
            let events = sdk.stream("echo", "SendStreamingMessage", message(TIDES, None, json!({}))).await?;
            let pieces: Vec<String> = events.iter().filter(|e| e["artifactUpdate"].is_object()).map(|e| text(&json!({"artifacts": [e["artifactUpdate"]["artifact"]]}))).collect();
            let end = events.last().map(|e| e["statusUpdate"]["status"]["state"].clone());
            want(pieces.len() > 3 && pieces.concat() == TIDES && end == Some(json!("TASK_STATE_COMPLETED")), &json!(events))
        }
        "get" => {
            let t = send(sdk, "relay", TIDES, None, false).await?;
            let got = sdk.call("relay", "GetTask", json!({"id": id(&t)})).await?;
            want(got["id"] == t["id"] && text(&got) == TIDES, &got)
        }
        "list" => {
            let t = send(sdk, "relay", TIDES, None, false).await?;
            let page = sdk.call("relay", "ListTasks", json!({"contextId": t["contextId"], "pageSize": 1})).await?;
            want(page["tasks"][0]["id"] == t["id"], &page)
        }
        "cancel" => {
            let t = send(sdk, "bureau", TIDES, None, true).await?;
            let got = sdk.call("bureau", "CancelTask", json!({"id": id(&t)})).await?;
            want(got["status"]["state"] == "TASK_STATE_CANCELED", &got)
        }
        "subscribe" => {
            let t = send(sdk, "bureau", TIDES, None, true).await?;
            let canceled = async {
                tokio::time::sleep(Duration::from_millis(300)).await;
                sdk.call("bureau", "CancelTask", json!({"id": id(&t)})).await
            };
            let (events, canceled) = tokio::join!(sdk.stream("bureau", "SubscribeToTask", json!({"id": id(&t)})), canceled);
            canceled?;
            let events = json!(events?);
            want(events[0]["task"]["id"] == t["id"] && events.to_string().contains("TASK_STATE_CANCELED"), &events)
        }
        "question" => {
            let asked = send(sdk, "desk", "High tide", None, false).await?;
            want(asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED", &asked)?;
            let t = send(sdk, "desk", "Brest", Some(id(&asked)), false).await?;
            want(text(&t).contains("in Brest"), &t)
        }
        "push" => {
            let t = send(sdk, "relay", TIDES, None, false).await?;
            let of_task = |extra: Value| {
                let mut params = json!({"taskId": id(&t)});
                params.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
                params
            };
            let made = sdk.call("relay", "CreateTaskPushNotificationConfig", of_task(json!({"id": "p", "url": "http://127.0.0.1:9/hook"}))).await?;
            want(made["id"] == "p", &made)?;
            let got = sdk.call("relay", "GetTaskPushNotificationConfig", of_task(json!({"id": "p"}))).await?;
            want(got["url"] == "http://127.0.0.1:9/hook", &got)?;
            let all = sdk.call("relay", "ListTaskPushNotificationConfigs", of_task(json!({}))).await?;
            want(all["configs"].as_array().is_some_and(|c| c.len() == 1), &all)?;
            sdk.call("relay", "DeleteTaskPushNotificationConfig", of_task(json!({"id": "p"}))).await.map(|_| ())
        }
        "receive" => {
            let hook = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
            let config = json!({"taskPushNotificationConfig": {"url": format!("http://{}", hook.local_addr()?), "token": "secret-of-the-hook"}});
            let received = async {
                let mut all = String::new();
                while !all.contains("TASK_STATE_COMPLETED") {
                    let (mut conn, _) = tokio::time::timeout(Duration::from_secs(20), hook.accept()).await??;
                    let mut part = vec![0; 64 << 10];
                    let n = conn.read(&mut part).await?;
                    all += &String::from_utf8_lossy(&part[..n]);
                    conn.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await?;
                }
                Ok::<_, Failure>(all)
            };
            let (sent, all) = tokio::join!(sdk.call("relay", "SendMessage", message(TIDES, None, config)), received);
            sent?;
            let all = all?;
            want(all.contains("secret-of-the-hook"), &json!(all))
        }
        "unknown" => {
            refused(sdk, "GetTask", json!({"id": UNKNOWN})).await?;
            refused(sdk, "CancelTask", json!({"id": UNKNOWN})).await?;
            refused(sdk, "SendMessage", message(TIDES, Some(UNKNOWN), json!({}))).await
        }
        _ => {
            let t = send(sdk, "relay", TIDES, None, false).await?;
            refused(sdk, "CancelTask", json!({"id": id(&t)})).await?;
            refused(sdk, "SendMessage", message(TIDES, Some(id(&t)), json!({}))).await
        }
    }
}

/// play plays the steps, and prints a line for each.
pub async fn play(sdk: &dyn Sdk) {
    for name in ["card", "send", "stream", "get", "list", "cancel", "subscribe", "question", "push", "receive", "unknown", "ended"] {
        let error = match tokio::time::timeout(Duration::from_secs(40), step(sdk, name)).await {
            Ok(Ok(())) => None,
            Ok(Err(e)) => Some(e.to_string()),
            Err(_) => Some("it took too long".to_owned()),
        };
        println!("{}", json!({"step": name, "error": error}));
    }
}

/// card is the card of the agent at an address.
pub fn card(at: &str, binding: &str) -> Value {
    json!({
        "name": "Far", "description": "Echoes from afar.", "version": "1", "capabilities": {"streaming": true},
        "supportedInterfaces": [{"url": at, "protocolBinding": binding, "protocolVersion": "1.0"}],
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "echo", "name": "Echo", "description": "Echoes.", "tags": ["echo"]}],
    })
}

/// status is an update of a task's status.
pub fn status(task: &str, context: &str, state: &str, text: Option<&str>) -> Value {
    let mut status = json!({"state": state});
    if let Some(text) = text {
        status["message"] = json!({"messageId": format!("status-of-{task}-{state}"), "role": "ROLE_AGENT", "parts": [{"text": text}]});
    }
    json!({"statusUpdate": {"taskId": task, "contextId": context, "status": status}})
}

/// events are what an agent answers, as ../interoprig/member.go wants it; after those for `wait` it waits.
pub fn events(task: &str, context: &str, said: &str, asked: bool) -> Vec<Value> {
    let piece = |text: &str, append: bool| {
        json!({"artifactUpdate": {"taskId": task, "contextId": context, "append": append, "lastChunk": append, "artifact": {"artifactId": "a", "parts": [{"text": text}]}}})
    };
    let mut events = vec![status(task, context, "TASK_STATE_WORKING", None)];
    match said {
        "ask" => events.push(status(task, context, "TASK_STATE_INPUT_REQUIRED", Some("Which city?"))),
        "fail" => events.push(status(task, context, "TASK_STATE_FAILED", Some("It is broken."))),
        "wait" => {}
        _ => {
            let text = if asked { format!("you said {said}") } else { said.to_owned() };
            events.extend([piece("far: ", false), piece(&text, true), status(task, context, "TASK_STATE_COMPLETED", None)]);
        }
    }
    events
}

/// ready says where a server is, and ends the program with its input.
pub fn ready(at: &str) {
    println!("ready {at}");
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut vec![]);
        std::process::exit(0) // it keeps nothing
    });
}
