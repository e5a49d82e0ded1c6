//! One row of the matrix, and how it is run.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use longarm::collect::{CollectLimits, CollectedOutput};
use longarm::error::SpawnError;
use longarm::fs::{FileSystem, FsError};
use longarm::request::TerminalSize;
use longarm::sandbox::{SandboxError, SandboxIntent};
use longarm::{ExecRequest, Process};

use crate::dirs::Dirs;
use crate::machine::Machine;
use crate::place::{Cripple, Kind, Place, Settings};
use crate::policy::Policy;

/// Longer than anything that works takes; what takes longer fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What is done.
pub(crate) enum Action {
    /// A shell script in the sandbox.
    Script(&'static str),
    /// The same on a terminal.
    OnTerminal(&'static str),
    /// Something that takes more than that.
    Custom(Custom),
}

pub(crate) type Custom = for<'a, 'b> fn(&'a Stage<'b>) -> Pin<Box<dyn Future<Output = Result<(), String>> + 'a>>;

/// What comes of it.
pub(crate) enum Expect {
    /// It ends with 0 and nothing was denied.
    Works,
    /// The same, and it prints this; variables of the directories are filled in.
    Prints(&'static str),
    /// It fails, says one of these, and counts as denied.
    Denied(&'static [&'static str]),
    /// It fails and says one of these; whether that counts as denied is left open.
    Fails(&'static [&'static str]),
    /// It ends with this code on the wire, and counts as denied or not.
    Exits(i32, bool),
    /// Nothing is started.
    Refused(Refusal),
    /// The action has looked itself.
    Looked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Invalid,
    Preparation,
    Unavailable,
    /// One of them.
    Any,
}

/// One row.
pub(crate) struct Row {
    number: u32,
    what: String,
    policy: Box<dyn Fn(&Dirs) -> Policy + Send + Sync>,
    action: Action,
    expect: Expect,
    setup: &'static str,
    after: &'static str,
    settings: Settings,
    places: &'static [Kind],
    /// What else the machine must have: says what is missing.
    needs: fn() -> Option<String>,
    unreached: bool,
    tool: Option<&'static str>,
    cwd: fn(&Dirs) -> &std::path::Path,
    env: &'static [(&'static str, &'static str)],
    arg0: Option<&'static str>,
}

impl Row {
    pub(crate) fn new(
        number: u32,
        what: impl Into<String>,
        policy: impl Fn(&Dirs) -> Policy + Send + Sync + 'static,
        action: Action,
        expect: Expect,
    ) -> Self {
        Self {
            number,
            what: what.into(),
            policy: Box::new(policy),
            action,
            expect,
            setup: "",
            after: "",
            settings: Settings::default(),
            places: Kind::ALL,
            needs: || None,
            unreached: false,
            tool: None,
            cwd: |dirs| &dirs.w,
            env: &[],
            arg0: None,
        }
    }

    /// What is done on the host before.
    pub(crate) fn setup(mut self, script: &'static str) -> Self {
        self.setup = script;
        self
    }

    /// What must hold on the host after.
    pub(crate) fn after(mut self, script: &'static str) -> Self {
        self.after = script;
        self
    }

    pub(crate) fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    pub(crate) fn at(mut self, places: &'static [Kind]) -> Self {
        self.places = places;
        self
    }

    /// Only where something more is there; says what is not.
    pub(crate) fn needs(mut self, missing: fn() -> Option<String>) -> Self {
        self.needs = missing;
        self
    }

    /// None of the host's sockets is reached by it.
    pub(crate) fn unreached(mut self) -> Self {
        self.unreached = true;
        self
    }

    pub(crate) fn tool(mut self, tool: &'static str) -> Self {
        self.tool = Some(tool);
        self
    }

    pub(crate) fn cwd(mut self, cwd: fn(&Dirs) -> &std::path::Path) -> Self {
        self.cwd = cwd;
        self
    }

    pub(crate) fn env(mut self, env: &'static [(&'static str, &'static str)]) -> Self {
        self.env = env;
        self
    }

    pub(crate) fn arg0(mut self, arg0: &'static str) -> Self {
        self.arg0 = Some(arg0);
        self
    }

    /// The row in each of its places.
    pub(crate) fn trials(self, machine: &Machine) -> Vec<Trial> {
        let row = Arc::new(self);
        let trial = |kind: &Kind| {
            let (row, kind) = (Arc::clone(&row), *kind);
            let name = format!("{}::{:03}_{}", kind.name(), row.number, row.what.replace([' ', ',', ':'], "_"));
            let skipped = row.obstacle(kind, machine);
            let trial = Trial::test(name, move || row.run(kind).map_err(Failed::from));
            match skipped {
                Some(reason) => trial.with_kind(format!("skipped, {reason}")).with_ignored_flag(true),
                None => trial,
            }
        };
        row.places.iter().map(trial).collect()
    }

    /// Why this machine cannot run it.
    fn obstacle(&self, kind: Kind, machine: &Machine) -> Option<String> {
        if let Some(missing) = (self.needs)() {
            return Some(missing);
        }
        if let Some(tool) = self.tool
            && !has_tool(tool)
        {
            return Some(format!("no {tool}"));
        }
        match self.settings.cripple {
            None | Some(Cripple::Listeners) => machine.lacks(kind.uid()).map(Into::into),
            Some(_) if !machine.landlock => Some("no Landlock".into()),
            Some(Cripple::UserNamespaces) if !machine.landlock_for_signals => {
                Some("Landlock does not keep signals within".into())
            }
            Some(_) => None,
        }
    }

    fn run(&self, kind: Kind) -> Result<(), String> {
        let dirs = Dirs::make(kind.uid(), self.setup);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let result = runtime.block_on(async {
            let place = Place::open(kind, self.settings, &dirs).await;
            let stage = Stage { policy: (self.policy)(&dirs), place, dirs: &dirs, row: self };
            let result = tokio::time::timeout(PATIENCE, self.perform(&stage)).await;
            let closing = tokio::time::timeout(PATIENCE, stage.place.close()).await;
            result.unwrap_or_else(|_| Err("it does not end".into()))?;
            closing.map_err(|_| "the place does not close".to_owned())
        });
        result?;
        let reached = dirs.reached();
        if self.unreached && !reached.is_empty() {
            return Err(format!("it has reached {reached:?}"));
        }
        if self.after.is_empty() { Ok(()) } else { dirs.host("after", self.after) }
    }

    async fn perform(&self, stage: &Stage<'_>) -> Result<(), String> {
        let (script, terminal) = match &self.action {
            Action::Script(script) => (script, false),
            Action::OnTerminal(script) => (script, true),
            Action::Custom(custom) => return custom(stage).await,
        };
        let mut request = stage.sh(script);
        if terminal {
            request = request.terminal(TerminalSize::default());
        }
        let outcome = stage.run(request).await;
        self.judge(stage, outcome)
    }

    fn judge(&self, stage: &Stage<'_>, outcome: Result<Ran, Refused>) -> Result<(), String> {
        let ran = match (&self.expect, outcome) {
            (Expect::Looked, _) => return Ok(()),
            (Expect::Refused(expected), Err(Refused { refusal, error })) => {
                let right = *expected == Refusal::Any || *expected == refusal;
                return if right { Ok(()) } else { Err(format!("{refusal:?} instead of {expected:?}: {error}")) };
            }
            (Expect::Refused(expected), Ok(ran)) => return Err(format!("not refused ({expected:?}) but {ran:?}")),
            (_, Err(refused)) => return Err(format!("refused: {refused:?}")),
            (_, Ok(ran)) => ran,
        };
        ran.check_type(stage.policy.enforces())?;
        let code = ran.output.status.wire_code();
        let says = |texts: &[&str]| texts.iter().any(|text| ran.text().contains(text));
        let denied = ran.output.sandbox_denied;
        let right = match &self.expect {
            Expect::Works => code == 0 && !denied,
            Expect::Prints(text) => {
                let variables = stage.dirs.variables();
                let text = variables
                    .iter()
                    .fold((*text).to_owned(), |text, (name, value)| text.replace(&format!("${{{name}}}"), value));
                code == 0 && !denied && ran.text().trim() == text
            }
            Expect::Denied(texts) => code != 0 && denied && says(texts),
            Expect::Fails(texts) => code != 0 && says(texts),
            Expect::Exits(expected, is_denied) => code == *expected && denied == *is_denied,
            Expect::Refused(_) | Expect::Looked => true,
        };
        if right { Ok(()) } else { Err(format!("{ran:?}")) }
    }
}

/// What an action has at hand.
pub(crate) struct Stage<'a> {
    pub(crate) policy: Policy,
    pub(crate) place: Place,
    pub(crate) dirs: &'a Dirs,
    row: &'a Row,
}

/// A process that has ended.
pub(crate) struct Ran {
    pub(crate) output: CollectedOutput,
    pub(crate) sandbox_type: Option<String>,
}

/// A process that was not started.
pub(crate) struct Refused {
    pub(crate) refusal: Refusal,
    pub(crate) error: String,
}

impl Stage<'_> {
    /// A shell script in the sandbox.
    pub(crate) fn sh(&self, script: &str) -> ExecRequest {
        self.request(["sh", "-c", script])
    }

    pub(crate) fn request<const N: usize>(&self, argv: [&str; N]) -> ExecRequest {
        let variables = self.dirs.variables();
        let fill = |text: &str| {
            variables.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("${{{name}}}"), value))
        };
        let mut request = ExecRequest::new(argv).cwd((self.row.cwd)(self.dirs)).env_clear();
        for (name, value) in &variables {
            request = request.env(*name, value);
        }
        for (name, value) in self.row.env {
            request = request.env(*name, fill(value));
        }
        match self.row.arg0 {
            Some(arg0) => request.arg0(arg0),
            None => request,
        }
    }

    /// Starts it under the row's policy.
    pub(crate) async fn start(&self, request: ExecRequest) -> Result<Process, Refused> {
        let request = match self.policy.json() {
            Some(json) => request.sandbox(SandboxIntent::from_json(&json).map_err(refused)?),
            None => request,
        };
        self.place.environment.spawn(request).await.map_err(|error| match error {
            SpawnError::Sandbox(error) => refused(error),
            error => panic!("not started: {error}"),
        })
    }

    /// What starting it under the row's policy fails by.
    pub(crate) async fn start_error(&self, request: ExecRequest) -> Result<SpawnError, String> {
        let intent = SandboxIntent::from_json(&self.policy.json().unwrap()).map_err(|error| error.to_string())?;
        match self.place.environment.spawn(request.sandbox(intent)).await {
            Ok(_) => Err("it was started".into()),
            Err(error) => Ok(error),
        }
    }

    /// The files of the place under the row's policy.
    pub(crate) fn files(&self) -> Result<Arc<dyn FileSystem>, FsError> {
        match self.policy.json() {
            Some(json) => self.place.environment.fs().with_sandbox(SandboxIntent::from_json(&json)?),
            None => Ok(self.place.environment.fs()),
        }
    }

    /// Runs a script without a sandbox, which must work.
    pub(crate) async fn freely(&self, script: &str) -> Result<String, String> {
        let output = self.place.environment.output(self.sh(script)).await.map_err(|error| error.to_string())?;
        let ran = Ran { output, sandbox_type: None };
        if ran.output.status.success() { Ok(ran.text()) } else { Err(format!("{script}, freely: {ran:?}")) }
    }

    pub(crate) async fn run(&self, request: ExecRequest) -> Result<Ran, Refused> {
        let process = self.start(request).await?;
        let sandbox_type = process.sandbox_type().map(Into::into);
        let output = process.output(CollectLimits::default()).await.unwrap();
        Ok(Ran { output, sandbox_type })
    }

    /// Runs a script that must work.
    pub(crate) async fn must(&self, script: &str) -> Result<String, String> {
        let ran = self.run(self.sh(script)).await.map_err(|refused| format!("{refused:?}"))?;
        if ran.output.status.wire_code() == 0 { Ok(ran.text()) } else { Err(format!("{script}: {ran:?}")) }
    }
}

fn refused(error: SandboxError) -> Refused {
    let refusal = match &error {
        SandboxError::Invalid { .. } => Refusal::Invalid,
        SandboxError::Preparation { .. } => Refusal::Preparation,
        SandboxError::Unavailable { .. } => Refusal::Unavailable,
        other => panic!("{other}"),
    };
    Refused { refusal, error: error.to_string() }
}

impl Ran {
    /// All that it wrote.
    pub(crate) fn text(&self) -> String {
        let output = &self.output;
        let bytes = [output.stdout.to_bytes(), output.stderr.to_bytes(), output.pty.to_bytes()].concat();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn check_type(&self, enforces: bool) -> Result<(), String> {
        let expected = if enforces { "linuxSeccomp" } else { "none" };
        match self.sandbox_type.as_deref() {
            Some(kind) if kind == expected => Ok(()),
            other => Err(format!("type {other:?} instead of {expected}")),
        }
    }
}

impl std::fmt::Debug for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = self.text();
        if let Some((end, _)) = text.char_indices().nth(2_000) {
            text.truncate(end);
        }
        let denied = self.output.sandbox_denied;
        write!(f, "{} (denied: {denied}, {:?}): {text}", self.output.status, self.sandbox_type)
    }
}

impl std::fmt::Debug for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {}", self.refusal, self.error)
    }
}

fn has_tool(tool: &str) -> bool {
    ["/usr/local/bin", "/usr/bin", "/bin"].iter().any(|dir| std::path::Path::new(dir).join(tool).is_file())
}
