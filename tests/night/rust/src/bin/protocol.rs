//! a2a-protocol-client as a client, `protocol SERVER BINDING`, and a2a-protocol-server as a server, `protocol BINDING`.
use a2a_protocol_client::{A2aClient, ClientBuilder, EventStream, resolve_agent_card};
use a2a_protocol_server::{AgentExecutor, EventQueueWriter, JsonRpcDispatcher, RequestContext, RequestHandlerBuilder, RestDispatcher, Server};
use a2a_protocol_types::{AgentCard, error::A2aResult};
use night::{Failure, Sdk, of, value};
use serde_json::Value;
use std::{pin::Pin, sync::Arc};

struct Remote {
    server: String,
    binding: String,
}

impl Remote {
    async fn agent(&self, name: &str) -> Result<A2aClient, Failure> {
        let card = resolve_agent_card(&format!("{}/{name}", self.server)).await?;
        Ok(ClientBuilder::from_card_preferring(&card, std::slice::from_ref(&self.binding))?.build()?)
    }
}

fn field(params: &Value, name: &str) -> String {
    params[name].as_str().unwrap_or_default().to_owned()
}

async fn drained(mut events: EventStream) -> Result<Vec<Value>, Failure> {
    let mut all = vec![];
    while let Some(event) = events.next().await {
        all.push(value(event?)?);
    }
    Ok(all)
}

#[async_trait::async_trait]
impl Sdk for Remote {
    async fn card(&self, agent: &str) -> Result<Value, Failure> {
        value(resolve_agent_card(&format!("{}/{agent}", self.server)).await?)
    }

    async fn call(&self, agent: &str, method: &str, params: Value) -> Result<Value, Failure> {
        let c = self.agent(agent).await?;
        match method {
            "SendMessage" => value(c.send_message(of(params)).await?),
            "GetTask" => value(c.get_task(of(params)).await?),
            "ListTasks" => value(c.list_tasks(of(params)).await?),
            "CancelTask" => value(c.cancel_task(field(&params, "id")).await?),
            "CreateTaskPushNotificationConfig" => value(c.set_push_config(of(params)).await?),
            "GetTaskPushNotificationConfig" => value(c.get_push_config(field(&params, "taskId"), field(&params, "id")).await?),
            "ListTaskPushNotificationConfigs" => value(c.list_push_configs(of(params)).await?),
            _ => value(c.delete_push_config(field(&params, "taskId"), field(&params, "id")).await?),
        }
    }

    async fn stream(&self, agent: &str, method: &str, params: Value) -> Result<Vec<Value>, Failure> {
        let c = self.agent(agent).await?;
        match method {
            "SubscribeToTask" => drained(c.subscribe_to_task(field(&params, "id")).await?).await,
            _ => drained(c.stream_message(of(params)).await?).await,
        }
    }
}

struct Far;

impl AgentExecutor for Far {
    fn execute<'a>(&'a self, ctx: &'a RequestContext, queue: &'a dyn EventQueueWriter) -> Pin<Box<dyn Future<Output = A2aResult<()>> + Send + 'a>> {
        Box::pin(async move {
            let message = serde_json::to_value(&ctx.message).unwrap_or_default();
            let said = message["parts"][0]["text"].as_str().unwrap_or_default();
            let stored = serde_json::to_value(&ctx.stored_task).unwrap_or_default();
            let asked = stored.to_string().contains("Which city?");
            let task = serde_json::to_value(&ctx.task_id).unwrap_or_default();
            for event in night::events(task.as_str().unwrap_or_default(), &ctx.context_id, said, asked) {
                queue.write(of(event)).await?;
            }
            if said == "wait" {
                ctx.cancellation_token.cancelled().await;
            }
            Ok(())
        })
    }
}

async fn serve(binding: &str) -> Result<(), Failure> {
    let free = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let at = format!("http://{free}");
    let card: AgentCard = of(night::card(&at, binding));
    let handler = Arc::new(RequestHandlerBuilder::new(Far).with_agent_card(card).build()?);
    let server = Server::bind(free).await?;
    night::ready(&at);
    if binding == "JSONRPC" {
        server.serve_with_shutdown(JsonRpcDispatcher::new(handler), std::future::pending()).await;
    } else {
        server.serve_with_shutdown(RestDispatcher::new(handler), std::future::pending()).await;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [server, binding] = args.as_slice() else { return serve(&args[0]).await };
    night::play(&Remote { server: server.clone(), binding: binding.clone() }).await;
    Ok(())
}
