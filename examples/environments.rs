//! Places by name.
//!
//! A provider of the host's own names two places, which connect when they are first used; then the host changes its mind.

use std::error::Error;
use std::sync::Arc;

use longarm::config::ClientConfig;
use longarm::environment::{
    DefaultEnvironment, EnvironmentId, EnvironmentProvider, Environments, EnvironmentsError, Place, Snapshot,
};
use longarm::server::{Server, serve_websocket};
use longarm::transport::websocket::{ListenOptions, Listener};
use longarm::{Environment, ExecRequest, Local, LocalConfig};
use tokio::sync::oneshot;

/// Where the host knows its places from: here, from what `main` tells it.
#[derive(Debug)]
struct Inventory {
    lab: String,
}

impl EnvironmentProvider for Inventory {
    fn snapshot(&self) -> Result<Snapshot, EnvironmentsError> {
        let lab = EnvironmentId::parse("lab")?;
        let attic = EnvironmentId::parse("attic")?;
        Ok(Snapshot {
            entries: vec![(lab.clone(), Place::url(&self.lab)), (attic, Place::url("ws://127.0.0.1:9"))],
            default: DefaultEnvironment::Id(lab),
            include_local: true,
        })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    // In place of a machine in a lab.
    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), ListenOptions::new()).await?;
    let lab = listener.local_url();
    let server = Server::new(Arc::new(Local::new(LocalConfig::from_host())));
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(async move { serve_websocket(&server, listener, async { drop(stopped.await) }).await });

    let environments = Environments::from_provider(&Inventory { lab }, Environment::local(), &ClientConfig::default())?;
    for id in environments.ids() {
        let place = environments.get(&id).ok_or("removed meanwhile")?;
        // Nothing is connected by looking.
        println!("{id}: {:?}", place.readiness());
    }
    let place = environments.default_environment().ok_or("no default")?;
    let output = place.output(ExecRequest::new(["echo", "from the lab"])).await?;
    print!("{}", output.stdout.to_text());

    let attic = EnvironmentId::parse("attic")?;
    let mut changes = environments.changes();
    environments.remove(&attic);
    environments.set_default(&EnvironmentId::parse(EnvironmentId::LOCAL)?)?;
    changes.changed().await;
    let default = environments.default_id().ok_or("no default")?;
    println!("now there are {:?}, and {default} is the default", environments.ids());

    place.close().await;
    drop(stop);
    serving.await??;
    Ok(())
}
