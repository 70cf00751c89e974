//! The Rust SDK as a client, `far SERVER BINDING`, and as a server, `far BINDING`.
use a2a::*;
use a2a_client::{A2AClient, A2AClientFactory, Transport, agent_card::AgentCardResolver};
use a2a_server::{AgentExecutor, DefaultRequestHandler, ExecutorContext, InMemoryTaskStore, StaticAgentCard};
use futures::{StreamExt, stream::BoxStream};
use serde_json::{Value, json};
use std::{future::Future, io::Read, sync::Arc, time::Duration};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Client = A2AClient<Box<dyn Transport>>;

const TIDES: &str = "high and low tide";
const UNKNOWN: &str = "00000000-0000-7000-8000-000000000000";

/// of makes a message of the protocol from its JSON.
fn of<T: for<'a> serde::Deserialize<'a>>(v: Value) -> T {
    serde_json::from_value(v).expect("a message of the protocol")
}

fn want(ok: bool, got: impl std::fmt::Debug) -> Result<(), Failure> {
    if ok { Ok(()) } else { Err(format!("{got:?}").into()) }
}

/// Remote calls agents of a server.
struct Remote {
    server: String,
    binding: String,
}

impl Remote {
    async fn agent(&self, name: &str) -> Result<Client, Failure> {
        let card = AgentCardResolver::new(None).resolve(&format!("{}/{name}", self.server)).await?;
        let factory = A2AClientFactory::builder().preferred_bindings(vec![self.binding.clone()]).build();
        let (client, at) = factory.create_from_card_with_interface(&card).await?;
        want(at.protocol_binding == self.binding, &at)?;
        Ok(client)
    }
}

fn request(text: &str, task: Option<&str>, now: bool) -> SendMessageRequest {
    let mut message = json!({"messageId": new_message_id(), "role": "ROLE_USER", "parts": [{"text": text}]});
    if let Some(task) = task {
        message["taskId"] = json!(task);
    }
    of(json!({"message": message, "configuration": {"returnImmediately": now}}))
}

async fn task(client: &Client, text: &str, id: Option<&str>, now: bool) -> Result<Task, Failure> {
    match client.send_message(&request(text, id, now)).await? {
        SendMessageResponse::Task(task) => Ok(task),
        other => Err(format!("{other:?}").into()),
    }
}

fn text(artifacts: &Option<Vec<Artifact>>) -> String {
    artifacts.iter().flatten().flat_map(|a| &a.parts).filter_map(|p| p.as_text()).collect()
}

/// drained reads a stream to its end: the pieces of text, and the last state.
async fn drained(mut events: BoxStream<'static, Result<StreamResponse, A2AError>>) -> Result<(Vec<String>, Option<TaskState>), Failure> {
    let (mut pieces, mut state) = (vec![], None);
    while let Some(event) = events.next().await {
        match event? {
            StreamResponse::Task(t) => state = Some(t.status.state),
            StreamResponse::StatusUpdate(u) => state = Some(u.status.state),
            StreamResponse::ArtifactUpdate(u) => pieces.extend(u.artifact.parts.iter().filter_map(|p| p.as_text().map(str::to_owned))),
            StreamResponse::Message(m) => return Err(format!("{m:?}").into()),
        }
    }
    Ok((pieces, state))
}

async fn refused<T: std::fmt::Debug>(call: impl Future<Output = Result<T, A2AError>>) -> Result<(), Failure> {
    match call.await {
        Err(_) => Ok(()),
        Ok(got) => Err(format!("{got:?}").into()),
    }
}

async fn step(r: &Remote, name: &str) -> Result<(), Failure> {
    match name {
        "card" => {
            let card = AgentCardResolver::new(None).resolve(&format!("{}/relay", r.server)).await?;
            want(card.name == "relay", card)
        }
        "send" => {
            let t = task(&r.agent("relay").await?, TIDES, None, false).await?;
            want(t.status.state == TaskState::Completed && text(&t.artifacts) == TIDES, t)
        }
        "stream" => {
            let (pieces, state) = drained(r.agent("echo").await?.send_streaming_message(&request(TIDES, None, false)).await?).await?;
            want(pieces.len() > 3 && pieces.concat() == TIDES && state == Some(TaskState::Completed), (pieces, state))
        }
        "get" => {
            let c = r.agent("relay").await?;
            let t = task(&c, TIDES, None, false).await?;
            let got = c.get_task(&of(json!({"id": t.id}))).await?;
            want(got.id == t.id && text(&got.artifacts) == TIDES, got)
        }
        "list" => {
            let c = r.agent("relay").await?;
            let t = task(&c, TIDES, None, false).await?;
            let page = c.list_tasks(&of(json!({"contextId": t.context_id, "pageSize": 1}))).await?;
            want(page.tasks.len() == 1 && page.tasks[0].id == t.id, page)
        }
        "cancel" => {
            let c = r.agent("bureau").await?;
            let t = task(&c, TIDES, None, true).await?;
            let got = c.cancel_task(&of(json!({"id": t.id}))).await?;
            want(got.status.state == TaskState::Canceled, got)
        }
        "subscribe" => {
            let c = r.agent("bureau").await?;
            let t = task(&c, TIDES, None, true).await?;
            let events = c.subscribe_to_task(&of(json!({"id": t.id}))).await?;
            let canceled = async {
                tokio::time::sleep(Duration::from_millis(300)).await;
                c.cancel_task(&of(json!({"id": t.id}))).await
            };
            let (end, canceled) = tokio::join!(drained(events), canceled);
            canceled?;
            want(end.as_ref().is_ok_and(|e| e.1 == Some(TaskState::Canceled)), end)
        }
        "question" => {
            let c = r.agent("desk").await?;
            let asked = task(&c, "High tide", None, false).await?;
            want(asked.status.state == TaskState::InputRequired, &asked)?;
            let t = task(&c, "Brest", Some(&asked.id), false).await?;
            want(text(&t.artifacts).contains("in Brest"), t)
        }
        "push" => {
            let c = r.agent("relay").await?;
            let id = task(&c, TIDES, None, false).await?.id;
            let made = c.create_push_config(&of(json!({"taskId": id, "id": "p", "url": "http://127.0.0.1:9/hook"}))).await?;
            want(made.id.as_deref() == Some("p"), &made)?;
            let got = c.get_push_config(&of(json!({"taskId": id, "id": "p"}))).await?;
            want(got.url == "http://127.0.0.1:9/hook", &got)?;
            let all = c.list_push_configs(&of(json!({"taskId": id}))).await?;
            want(all.configs.len() == 1, &all)?;
            Ok(c.delete_push_config(&of(json!({"taskId": id, "id": "p"}))).await?)
        }
        "receive" => {
            let hook = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
            let mut req = request(TIDES, None, false);
            req.configuration = Some(of(json!({"taskPushNotificationConfig": {"url": format!("http://{}", hook.local_addr()?), "token": "secret-of-the-hook"}})));
            let c = r.agent("relay").await?;
            let sent = tokio::spawn(async move { c.send_message(&req).await });
            let mut all = String::new();
            while !all.contains("TASK_STATE_COMPLETED") {
                let (mut conn, _) = tokio::time::timeout(Duration::from_secs(20), hook.accept()).await??;
                let mut part = vec![0; 64 << 10];
                let n = conn.read(&mut part).await?;
                all += &String::from_utf8_lossy(&part[..n]);
                conn.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await?;
            }
            sent.await??;
            want(all.contains("secret-of-the-hook"), all)
        }
        "unknown" => {
            let c = r.agent("relay").await?;
            refused(c.get_task(&of(json!({"id": UNKNOWN})))).await?;
            refused(c.cancel_task(&of(json!({"id": UNKNOWN})))).await?;
            refused(c.send_message(&request(TIDES, Some(UNKNOWN), false))).await
        }
        _ => {
            let c = r.agent("relay").await?;
            let id = task(&c, TIDES, None, false).await?.id;
            refused(c.cancel_task(&of(json!({"id": id})))).await?;
            refused(c.send_message(&request(TIDES, Some(&id), false))).await
        }
    }
}

/// Far echoes, asks, fails and waits.
struct Far;

impl AgentExecutor for Far {
    fn execute(&self, ctx: ExecutorContext) -> BoxStream<'static, Result<StreamResponse, A2AError>> {
        let said = ctx.message.as_ref().and_then(|m| m.text()).unwrap_or_default().to_owned();
        let asked = ctx.stored_task.as_ref().is_some_and(|t| t.status.state == TaskState::InputRequired);
        let (task, context) = ctx.task_info();
        let status = |state: &str, text: Option<&str>| -> Result<StreamResponse, A2AError> {
            let mut status = json!({"state": state});
            if let Some(text) = text {
                status["message"] = json!({"messageId": new_message_id(), "role": "ROLE_AGENT", "parts": [{"text": text}]});
            }
            Ok(of(json!({"statusUpdate": {"taskId": task, "contextId": context, "status": status}})))
        };
        let piece = |text: &str, append: bool| -> Result<StreamResponse, A2AError> {
            Ok(of(json!({"artifactUpdate": {"taskId": task, "contextId": context, "append": append, "lastChunk": append, "artifact": {"artifactId": "a", "parts": [{"text": text}]}}})))
        };
        let working = status("TASK_STATE_WORKING", None);
        let events = match said.as_str() {
            "ask" => vec![working, status("TASK_STATE_INPUT_REQUIRED", Some("Which city?"))],
            "fail" => vec![working, status("TASK_STATE_FAILED", Some("It is broken."))],
            "wait" => return futures::stream::iter(vec![working]).chain(futures::stream::pending()).boxed(),
            _ => {
                let text = if asked { format!("you said {said}") } else { said };
                vec![working, piece("far: ", false), piece(&text, true), status("TASK_STATE_COMPLETED", None)]
            }
        };
        futures::stream::iter(events).boxed()
    }

    fn cancel(&self, ctx: ExecutorContext) -> BoxStream<'static, Result<StreamResponse, A2AError>> {
        let (task, context) = ctx.task_info();
        let event = of(json!({"statusUpdate": {"taskId": task, "contextId": context, "status": {"state": "TASK_STATE_CANCELED"}}}));
        futures::stream::iter(vec![Ok(event)]).boxed()
    }
}

async fn serve(binding: &str) -> Result<(), Failure> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let at = format!("http://{}", listener.local_addr()?);
    let card: AgentCard = of(json!({
        "name": "Far", "description": "Echoes from afar.", "version": "1", "capabilities": {"streaming": true},
        "supportedInterfaces": [{"url": at, "protocolBinding": binding, "protocolVersion": "1.0"}],
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "echo", "name": "Echo", "description": "Echoes.", "tags": ["echo"]}],
    }));
    let handler = Arc::new(DefaultRequestHandler::new(Far, InMemoryTaskStore::new()).with_capabilities(card.capabilities.clone()));
    let calls = if binding == "JSONRPC" { a2a_server::jsonrpc::jsonrpc_router(handler) } else { a2a_server::rest::rest_router(handler) };
    let app = calls.merge(a2a_server::agent_card::agent_card_router(Arc::new(StaticAgentCard::new(card))));
    println!("ready {at}");
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut vec![]);
        std::process::exit(0) // it keeps nothing
    });
    Ok(axum::serve(listener, app).await?)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [server, binding] = args.as_slice() else { return serve(&args[0]).await };
    let remote = Remote { server: server.clone(), binding: binding.clone() };
    for name in ["card", "send", "stream", "get", "list", "cancel", "subscribe", "question", "push", "receive", "unknown", "ended"] {
        let error = match tokio::time::timeout(Duration::from_secs(40), step(&remote, name)).await {
            Ok(Ok(())) => None,
            Ok(Err(e)) => Some(e.to_string()),
            Err(_) => Some("it took too long".to_owned()),
        };
        println!("{}", json!({"step": name, "error": error}));
    }
    Ok(())
}
