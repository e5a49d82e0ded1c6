//! The arguments.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Run commands on this machine or on another, with the same behaviour.
#[derive(Parser)]
#[command(name = "longarm", version)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Subcommand)]
pub(super) enum Command {
    /// Serve this machine to clients.
    Serve(ServeArgs),
    /// Run one command: here, or where a server is.
    Exec(ExecArgs),
    /// Copy files and directories between here and where a server is.
    ///
    /// A path that begins with a colon is in the place, any other is here. Directories are copied with all that is in them,
    /// except links and special files, which are named and passed over; into a directory that exists, a source is copied
    /// under its own name. Files get the mode of new files, or keep the one that they have.
    Cp(CpArgs),
    /// Say what a place is: its shell, directories, operating system, capabilities.
    Info(InfoArgs),
}

#[derive(Args)]
pub(super) struct ServeArgs {
    /// Where to listen: ws://IP:PORT (port 0 is any free port), or stdio for one client on the standard streams.
    #[arg(long, value_name = "ADDRESS", default_value = "ws://127.0.0.1:0")]
    pub(super) listen: String,
    /// A file whose content, without white space around it, clients must show as a bearer token. Without one, whoever can
    /// reach the port is served, also a command in a sandbox of this executor whose network is enabled.
    #[arg(long, value_name = "PATH")]
    pub(super) auth_token_file: Option<PathBuf>,
    /// How long a session without a connection is kept.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) session_ttl: Option<Duration>,
    /// How many sessions there may be at a time, and how many connections.
    #[arg(long, value_name = "COUNT")]
    pub(super) max_sessions: Option<usize>,
    /// How many processes a session may run at a time, and how many that have ended it keeps.
    #[arg(long, value_name = "COUNT")]
    pub(super) max_processes: Option<usize>,
    #[command(flatten)]
    pub(super) sandbox: SandboxSettingsArgs,
}

/// What the owner of an executor decides about its sandboxes.
#[derive(Args)]
pub(super) struct SandboxSettingsArgs {
    /// Start commands also where a part of their sandbox cannot be enforced, such as without user namespaces. Otherwise they
    /// are refused.
    #[arg(long)]
    pub(super) sandbox_accept_partial: bool,
    /// Give commands whose network is restricted a loopback interface of their own, on which they reach themselves only.
    #[arg(long)]
    pub(super) sandbox_private_loopback: bool,
    /// Keep this name at the top of each workspace root read-only too, besides .git, .agents, .codex and .aws.
    #[arg(long, value_name = "NAME")]
    pub(super) sandbox_protect: Vec<String>,
    /// Make no placeholder for a protected name that does not exist: look when a command has ended, and say what appeared.
    #[arg(long)]
    pub(super) sandbox_check_names: bool,
    /// As --sandbox-check-names, and move what appeared into the state directory, or, if that is on another file system, to
    /// another name beside it. Also what somebody else has made meanwhile: nobody can tell.
    #[arg(long, conflicts_with = "sandbox_check_names")]
    pub(super) sandbox_move_names: bool,
    /// Where to note which placeholders exist, so that they go also after this program was killed.
    #[arg(long, value_name = "DIR")]
    pub(super) sandbox_state_dir: Option<PathBuf>,
}

/// Which place is meant; without any of these, this machine.
#[derive(Args)]
pub(super) struct PlaceArgs {
    /// The place is where this server is, such as ws://127.0.0.1:4711.
    #[arg(long, value_name = "URL", conflicts_with = "stdio")]
    pub(super) connect: Option<String>,
    /// Launch this server with the shell and speak to it over its standard streams.
    #[arg(long, value_name = "COMMAND")]
    pub(super) stdio: Option<OsString>,
    /// A file with the bearer token to show to the server.
    #[arg(long, value_name = "PATH", requires = "connect")]
    pub(super) auth_token_file: Option<PathBuf>,
}

impl PlaceArgs {
    /// Whether the place is this machine itself, and no server.
    pub(super) const fn is_this_machine(&self) -> bool {
        self.connect.is_none() && self.stdio.is_none()
    }
}

#[derive(Args)]
pub(super) struct CpArgs {
    #[command(flatten)]
    pub(super) place: PlaceArgs,
    /// Go on where an earlier copy was interrupted: what a destination has is kept if it ends as the same part of its source
    /// does. Only a longarm server lets an upload go on; to others it begins again.
    #[arg(long)]
    pub(super) resume: bool,
    /// Show no progress.
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// What to copy.
    #[arg(required = true, value_name = "SOURCE")]
    pub(super) sources: Vec<OsString>,
    /// What to make of it; with several sources, an existing directory.
    #[arg(required = true, value_name = "DESTINATION")]
    pub(super) destination: OsString,
}

#[derive(Args)]
pub(super) struct InfoArgs {
    #[command(flatten)]
    pub(super) place: PlaceArgs,
    /// Print one object, as JSON.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args)]
pub(super) struct ExecArgs {
    #[command(flatten)]
    pub(super) place: PlaceArgs,
    /// The working directory, absolute, in the place where the command runs.
    #[arg(long, value_name = "DIR")]
    pub(super) cwd: Option<PathBuf>,
    /// Set a variable of the command.
    #[arg(long, value_name = "K=V")]
    pub(super) env: Vec<OsString>,
    /// What the command inherits of the environment of its place.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Inherit::All)]
    pub(super) env_inherit: Inherit,
    /// Forward standard input and its end.
    #[arg(short = 'i', long)]
    pub(super) interactive: bool,
    /// Run the command on a terminal.
    #[arg(short = 't', long)]
    pub(super) tty: bool,
    /// End the command after this time.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) timeout: Option<Duration>,
    /// End with the command whatever it has started, also daemons; refused where that cannot be done.
    #[arg(long)]
    pub(super) contain: bool,
    /// Run the command in a sandbox: read-only, workspace-write, or a file with an intent as JSON. Refused where it cannot be
    /// enforced.
    #[arg(long, value_name = "POLICY")]
    pub(super) sandbox: Option<OsString>,
    /// Start the command also where a part of its sandbox cannot be enforced, as on every macOS and Windows. Of a server, its
    /// owner decides that.
    #[arg(long, requires = "sandbox", conflicts_with_all = ["connect", "stdio"])]
    pub(super) sandbox_accept_partial: bool,
    /// Where to note which placeholders exist, so that they go also after this program was killed: a directory that nobody
    /// else may write to. Of a server, its owner names it.
    #[arg(long, value_name = "DIR", requires = "sandbox", conflicts_with_all = ["connect", "stdio"])]
    pub(super) sandbox_state_dir: Option<PathBuf>,
    /// A workspace root of the sandbox, absolute, in the place where the command runs. With workspace-write by default its
    /// working directory; those of a file are added to. With read-only there is none. One that does not exist is passed over.
    #[arg(long, value_name = "DIR", requires = "sandbox")]
    pub(super) root: Vec<PathBuf>,
    /// Print one event a line, as JSON, instead of the output.
    #[arg(long)]
    pub(super) json: bool,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "ARGV")]
    pub(super) argv: Vec<OsString>,
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Inherit {
    /// All variables.
    All,
    /// Paths, locale, user, temporary directory.
    Core,
    /// Nothing.
    None,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn times_are_seconds_with_or_without_a_fraction() {
        assert_eq!(seconds("2"), Ok(Duration::from_secs(2)));
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for wrong in ["", "x", "-1", "nan", "inf", "1e300"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
