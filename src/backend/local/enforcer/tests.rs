use std::path::PathBuf;
use std::sync::Mutex;

use super::*;
use crate::collect::{CollectLimits, CollectedOutput};
use crate::error::SpawnError;
use crate::path_uri::PathUri;
use crate::sandbox::{NetworkPolicy, SandboxIntent};
use crate::{Environment, ExecRequest, Local, LocalConfig};

/// Has commands started by `env`, which adds a variable to theirs; and keeps what it was asked.
#[derive(Debug)]
struct Marks {
    level: Level,
    asked: Mutex<Vec<Asked>>,
}

#[derive(Clone, Debug)]
struct Asked {
    bound: Arc<Bound>,
    managed: Option<ManagedNetworkFacts>,
    cwd: PathBuf,
}

impl Marks {
    fn new(level: Level) -> Arc<Self> {
        Arc::new(Self { level, asked: Mutex::default() })
    }
}

impl SandboxEnforcer for Marks {
    fn sandbox_type(&self) -> &str {
        "marked"
    }

    fn prepare(&self, start: &SandboxedStart<'_>) -> Result<SandboxPlan, SandboxError> {
        let (bound, managed, cwd) = (Arc::clone(start.bound), start.managed.cloned(), start.cwd.to_owned());
        self.asked.lock().unwrap().push(Asked { bound, managed, cwd });
        let enforcement = Enforcement::new(self.level.clone(), vec!["env".into()], Vec::new());
        SandboxPlan::launcher(["/usr/bin/env", "MARK=in a sandbox"], enforcement)
    }
}

fn environment(enforcer: &Arc<Marks>, settings: SandboxSettings) -> Environment {
    let enforcer = Arc::clone(enforcer) as Arc<dyn SandboxEnforcer>;
    let config = LocalConfig::from_host().enforcer(enforcer).sandbox(settings);
    Environment::with_backend(Arc::new(Local::new(config)))
}

fn print_mark() -> ExecRequest {
    ExecRequest::new(["sh", "-c", "echo \"$MARK\"; echo permission denied >&2; exit 3"]).cwd("/")
}

async fn collect(process: crate::Process) -> CollectedOutput {
    process.output(CollectLimits::default()).await.unwrap()
}

#[tokio::test]
async fn a_launcher_starts_what_is_to_be_in_a_sandbox_and_nothing_else() {
    let enforcer = Marks::new(Level::Full);
    let place = environment(&enforcer, SandboxSettings::default());
    let output = collect(place.spawn(print_mark()).await.unwrap()).await;
    assert_eq!(output.stdout.to_text(), "\n");
    let nothing = SandboxIntent::disabled();
    let output = collect(place.spawn(print_mark().sandbox(nothing)).await.unwrap()).await;
    assert_eq!(output.stdout.to_text(), "\n");
    assert!(enforcer.asked.lock().unwrap().is_empty(), "there is nothing to restrict");

    let managed = ManagedNetworkFacts::ports([4]);
    let request = print_mark().sandbox(SandboxIntent::read_only()).managed_network(managed.clone());
    let process = place.spawn(request).await.unwrap();
    assert_eq!(process.sandbox_type(), Some("marked"));
    let enforcement = process.enforcement().unwrap();
    assert_eq!((enforcement.level, enforcement.mechanisms), (Level::Full, vec!["env".to_owned()]));
    let handle = process.handle();
    let output = collect(process).await;
    assert_eq!(output.stdout.to_text(), "in a sandbox\n");
    assert_eq!(output.status.code(), Some(3));
    assert!(handle.denial().is_some_and(|denial| denial.denied), "its output says so");
    let asked = enforcer.asked.lock().unwrap().clone();
    let [Asked { bound, managed: facts, cwd }] = &asked[..] else { panic!("asked {} times", asked.len()) };
    assert_eq!(
        (bound.network, facts.as_ref(), cwd.as_path()),
        (NetworkPolicy::Restricted, Some(&managed), Path::new("/"))
    );
    assert!(bound.can_read(Path::new("/etc")) && !bound.can_write(Path::new("/etc")));
    place.close().await;
}

#[tokio::test]
async fn less_than_all_needs_the_owners_consent_and_nothing_is_not_enough() {
    for (level, consents, runs) in [
        (Level::Partial(vec!["half of it".into()]), false, false),
        (Level::Partial(vec!["half of it".into()]), true, true),
        (Level::None, true, false),
    ] {
        let place = environment(&Marks::new(level.clone()), SandboxSettings::default().accept_partial(consents));
        match place.spawn(print_mark().sandbox(SandboxIntent::read_only())).await {
            Ok(process) => {
                assert!(runs, "{level:?}");
                assert_eq!(process.enforcement().unwrap().level, level);
                collect(process).await;
            }
            Err(SpawnError::Sandbox(SandboxError::Unavailable { cause, .. })) => {
                assert!(!runs, "{level:?}");
                assert!(level == Level::None || cause.contains("half of it"), "{cause}");
            }
            Err(error) => panic!("{error}"),
        }
        place.close().await;
    }
}

#[tokio::test]
async fn a_launcher_gives_no_other_name() {
    let place = environment(&Marks::new(Level::Full), SandboxSettings::default());
    let request = print_mark().arg0("other").sandbox(SandboxIntent::read_only());
    let refusal = place.spawn(request).await.unwrap_err();
    assert!(matches!(&refusal, SpawnError::Sandbox(SandboxError::Unavailable { .. })), "{refusal}");
    assert!(refusal.to_string().contains("arg0"), "{refusal}");
    place.close().await;
}

#[tokio::test]
async fn a_launcher_takes_no_code_from_where_a_request_says() {
    let place = environment(&Marks::new(Level::Full), SandboxSettings::default());
    for name in ["LD_PRELOAD", "BASH_ENV"] {
        let request = print_mark().env(name, "/nowhere/of-the-request").sandbox(SandboxIntent::read_only());
        let refusal = place.spawn(request).await.unwrap_err();
        assert!(matches!(&refusal, SpawnError::Sandbox(SandboxError::Unavailable { .. })), "{refusal}");
        assert!(refusal.to_string().contains(name), "{refusal}");
        assert!(!refusal.to_string().contains("of-the-request"), "values are not shown: {refusal}");
        // Without a sandbox there is no launcher.
        collect(place.spawn(print_mark().env(name, "")).await.unwrap()).await;
    }
    place.close().await;
}

#[test]
fn a_launcher_is_named_by_its_place() {
    let plan = |launcher: &[&str]| SandboxPlan::launcher(launcher, Enforcement::NONE);
    assert!(plan(&["env"]).unwrap_err().to_string().contains("the launcher env is not"));
    assert!(plan(&[]).unwrap_err().to_string().contains("names no launcher"));
    assert!(plan(&["/usr/bin/env"]).is_ok());
}

#[tokio::test]
async fn what_would_be_enforced_is_told_without_a_start() {
    let enforcer = Marks::new(Level::Full);
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let root = PathUri::from_host_native_path(dir.path()).unwrap();
    let request = |intent| ExecRequest::new(["/nonexistent/program"]).cwd(dir.path()).sandbox(intent);
    let place = Local::new(LocalConfig::from_host().enforcer(Arc::clone(&enforcer) as Arc<dyn SandboxEnforcer>));
    let told = place.assess_sandbox(&request(SandboxIntent::workspace_write([root.clone()]))).await.unwrap();
    assert_eq!(told.mechanisms, ["env"]);
    assert_eq!(enforcer.asked.lock().unwrap().len(), 1);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is made");
    let told = place.assess_sandbox(&request(SandboxIntent::disabled())).await.unwrap();
    assert_eq!(told, Enforcement::NONE);
    let missing = request(SandboxIntent::read_only()).cwd(dir.path().join("missing"));
    let refusal = place.assess_sandbox(&missing).await.unwrap_err();
    assert!(matches!(refusal, SpawnError::CwdNotFound { .. }), "{refusal}");

    // As a start would report it.
    let native = Environment::local();
    let place = Local::new(LocalConfig::from_host());
    for intent in [SandboxIntent::read_only(), SandboxIntent::workspace_write([root]), SandboxIntent::no_network()] {
        let told = place.assess_sandbox(&request(intent.clone())).await;
        let start = ExecRequest::new(["true"]).cwd(dir.path()).sandbox(intent);
        match (told, native.spawn(start).await) {
            (Ok(told), Ok(process)) => {
                assert_eq!(Some(told), process.enforcement());
                collect(process).await;
            }
            (Err(told), Err(refusal)) => assert_eq!(told.to_string(), refusal.to_string()),
            (told, started) => panic!("told {told:?}, and {started:?}"),
        }
    }
    native.close().await;
}
