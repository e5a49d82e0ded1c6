//! Places by name, from a file: behind a server program, behind a URL, and some that nobody can reach.

use std::sync::Arc;

use longarm::config::ClientConfig;
use longarm::environment::{EnvironmentId, Environments, EnvironmentsFile};
use longarm::error::ConnectError;
use longarm::server::{Server, serve_websocket};
use longarm::transport::websocket::{ListenOptions, Listener};
use longarm::{Environment, ExecRequest, Local, LocalConfig};
use tokio::sync::oneshot;

fn id(name: &str) -> EnvironmentId {
    EnvironmentId::parse(name).expect("a name")
}

async fn says(place: &Environment) -> String {
    let output = place.output(ExecRequest::new(["echo", "hi"])).await.expect("it runs");
    output.stdout.to_text()
}

#[tokio::test]
async fn a_file_names_places_that_connect_when_they_are_used() {
    let listener =
        Listener::bind("127.0.0.1:0".parse().expect("an address"), ListenOptions::new()).await.expect("bound");
    let url = listener.local_url();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = Server::new(Arc::new(Local::new(LocalConfig::from_host())));
    let serving = tokio::spawn({
        let server = server.clone();
        async move { serve_websocket(&server, listener, async { drop(stopped.await) }).await }
    });
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("environments.toml");
    let program = env!("CARGO_BIN_EXE_longarm");
    let text = format!(
        r#"
        default = "lab"

        [[environments]]
        id = "builder"
        program = "{program}"
        args = ["serve", "--listen", "stdio"]

        [[environments]]
        id = "lab"
        url = "{url}"

        [[environments]]
        id = "nowhere"
        program = "{program}-that-is-not-there"
        "#
    );
    std::fs::write(&path, text).expect("written");
    let file = EnvironmentsFile::new(&path);
    let places =
        Environments::from_provider(&file, Environment::local(), &ClientConfig::default()).expect("a good file");
    let names: Vec<_> = places.ids().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["local", "builder", "lab", "nowhere"]);
    assert_eq!(server.counts().connections, 0, "nobody has used one");

    for name in ["local", "builder", "lab"] {
        assert_eq!(says(&places.get(&id(name)).expect("there")).await, "hi\n", "{name}");
    }
    assert_eq!(says(&places.default_environment().expect("the lab")).await, "hi\n");
    assert_eq!(server.counts().connections, 1, "one, for all who use it");
    let nowhere = places.get(&id("nowhere")).expect("there");
    assert!(matches!(nowhere.wait_until_ready().await, Err(ConnectError::Launch { .. })));

    // A handle that was taken out lives on when its entry is replaced or removed.
    let lab = places.get(&id("lab")).expect("there");
    places.insert(id("lab"), Environment::local()).expect("not reserved").expect("the former one").close().await;
    assert!(places.get(&id("lab")).expect("there").remote().is_none());
    assert!(lab.spawn(ExecRequest::new(["echo"])).await.is_err(), "it is closed, for all who have it");
    let builder = places.remove(&id("builder")).expect("there");
    assert_eq!(says(&builder).await, "hi\n");
    builder.close().await;
    drop(stop);
    serving.await.expect("no panic").expect("it ends well");
}
