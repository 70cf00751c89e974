//! a2a-client-lf as a client, `lf SERVER BINDING`, and a2a-server-lf as a server, `lf BINDING`.
use a2a::*;
use a2a_client::{A2AClient, A2AClientFactory, Transport, agent_card::AgentCardResolver};
use a2a_server::{AgentExecutor, DefaultRequestHandler, ExecutorContext, InMemoryTaskStore, StaticAgentCard};
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use night::{Failure, Sdk, of, value};
use serde_json::Value;
use std::sync::Arc;

struct Remote {
    server: String,
    binding: String,
}

impl Remote {
    async fn agent(&self, name: &str) -> Result<A2AClient<Box<dyn Transport>>, Failure> {
        let card = AgentCardResolver::new(None).resolve(&format!("{}/{name}", self.server)).await?;
        let factory = A2AClientFactory::builder().preferred_bindings(vec![self.binding.clone()]).build();
        let (client, at) = factory.create_from_card_with_interface(&card).await?;
        if at.protocol_binding != self.binding {
            return Err(at.protocol_binding.into());
        }
        Ok(client)
    }
}

#[async_trait::async_trait]
impl Sdk for Remote {
    async fn card(&self, agent: &str) -> Result<Value, Failure> {
        value(AgentCardResolver::new(None).resolve(&format!("{}/{agent}", self.server)).await?)
    }

    async fn call(&self, agent: &str, method: &str, params: Value) -> Result<Value, Failure> {
        let c = self.agent(agent).await?;
        match method {
            "SendMessage" => value(c.send_message(&of(params)).await?),
            "GetTask" => value(c.get_task(&of(params)).await?),
            "ListTasks" => value(c.list_tasks(&of(params)).await?),
            "CancelTask" => value(c.cancel_task(&of(params)).await?),
            "CreateTaskPushNotificationConfig" => value(c.create_push_config(&of(params)).await?),
            "GetTaskPushNotificationConfig" => value(c.get_push_config(&of(params)).await?),
            "ListTaskPushNotificationConfigs" => value(c.list_push_configs(&of(params)).await?),
            _ => value(c.delete_push_config(&of(params)).await?),
        }
    }

    async fn stream(&self, agent: &str, method: &str, params: Value) -> Result<Vec<Value>, Failure> {
        let c = self.agent(agent).await?;
        let events = match method {
            "SubscribeToTask" => c.subscribe_to_task(&of(params)).await?,
            _ => c.send_streaming_message(&of(params)).await?,
        };
        let all: Vec<StreamResponse> = events.try_collect().await?;
        all.into_iter().map(value).collect()
    }
}

struct Far;

impl AgentExecutor for Far {
    fn execute(&self, ctx: ExecutorContext) -> BoxStream<'static, Result<StreamResponse, A2AError>> {
        let said = ctx.message.as_ref().and_then(|m| m.text()).unwrap_or_default().to_owned();
        let asked = ctx.stored_task.as_ref().is_some_and(|t| t.status.state == TaskState::InputRequired);
        let (task, context) = ctx.task_info();
        let events: Vec<Result<StreamResponse, A2AError>> = night::events(&task, &context, &said, asked).into_iter().map(|e| Ok(of(e))).collect();
        let events = futures::stream::iter(events);
        if said == "wait" { events.chain(futures::stream::pending()).boxed() } else { events.boxed() }
    }

    fn cancel(&self, ctx: ExecutorContext) -> BoxStream<'static, Result<StreamResponse, A2AError>> {
        let (task, context) = ctx.task_info();
        futures::stream::iter(vec![Ok(of(night::status(&task, &context, "TASK_STATE_CANCELED", None)))]).boxed()
    }
}

async fn serve(binding: &str) -> Result<(), Failure> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let at = format!("http://{}", listener.local_addr()?);
    let card: AgentCard = of(night::card(&at, binding));
    let handler = Arc::new(DefaultRequestHandler::new(Far, InMemoryTaskStore::new()).with_capabilities(card.capabilities.clone()));
    let calls = if binding == "JSONRPC" { a2a_server::jsonrpc::jsonrpc_router(handler) } else { a2a_server::rest::rest_router(handler) };
    let app = calls.merge(a2a_server::agent_card::agent_card_router(Arc::new(StaticAgentCard::new(card))));
    night::ready(&at);
    Ok(axum::serve(listener, app).await?)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [server, binding] = args.as_slice() else { return serve(&args[0]).await };
    night::play(&Remote { server: server.clone(), binding: binding.clone() }).await;
    Ok(())
}
