//! `longarm info`.

use std::io::Write as _;
use std::process::ExitCode;

use longarm::PathUri;
use longarm::info::EnvironmentInfo;
use serde::Serialize;
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::args::InfoArgs;
use super::{CLOSE_TIME, INTERRUPTED, complain, explain, os, place};

/// The exit code when the place could not be asked.
const NOT_TOLD: u8 = 1;

/// Everything that is known of a place.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Facts<'a> {
    shell: Shell<'a>,
    executor_version: &'a str,
    provider_id: Option<&'a str>,
    platform_os: Option<&'a str>,
    hostname: Option<&'a str>,
    cwd: Option<String>,
    home_dir: Option<String>,
    temp_dir: Option<String>,
    temporary_directories: Option<Vec<String>>,
    prepend_path_dirs: Vec<String>,
    capabilities: &'a [String],
    features: Vec<&'static str>,
}

#[derive(Serialize)]
struct Shell<'a> {
    name: &'a str,
    path: &'a str,
}

pub(super) fn run(args: InfoArgs) -> ExitCode {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&explain(&error));
            return ExitCode::from(NOT_TOLD);
        }
    };
    let told = runtime.block_on(tell(args));
    runtime.shutdown_background();
    match told {
        Ok(code) => code,
        Err(reason) => {
            complain(&reason);
            ExitCode::from(NOT_TOLD)
        }
    }
}

async fn tell(args: InfoArgs) -> Result<ExitCode, String> {
    let mut signals = os::Signals::new().map_err(|error| explain(&error))?;
    let asking = async {
        let (environment, _) = place::connect(&args.place).await?;
        let info = environment.info().await.map_err(|error| explain(&error));
        let features: Vec<_> = environment.features().names().collect();
        // All is known; an end that does not come changes nothing.
        let _ = timeout(CLOSE_TIME, environment.close()).await;
        Ok::<_, String>((info?, features))
    };
    let (info, features) = tokio::select! {
        answer = asking => answer?,
        () = signals.stop() => return Ok(ExitCode::from(INTERRUPTED)),
    };
    let facts = Facts::new(&info, features);
    let text = if args.json { facts.json()? } else { facts.text() };
    std::io::stdout().write_all(text.as_bytes()).map_err(|error| explain(&error))?;
    Ok(ExitCode::SUCCESS)
}

impl<'a> Facts<'a> {
    fn new(info: &'a EnvironmentInfo, features: Vec<&'static str>) -> Self {
        let native = |uri: &PathUri| {
            let os = info.platform_os.as_deref().unwrap_or(std::env::consts::OS);
            uri.to_native(os).map_or_else(|_| uri.as_str().to_owned(), |native| native.to_string())
        };
        let all = |uris: &[PathUri]| uris.iter().map(native).collect::<Vec<_>>();
        Self {
            shell: Shell { name: &info.shell.name, path: &info.shell.path },
            executor_version: &info.executor_version,
            provider_id: info.provider_id.as_deref(),
            platform_os: info.platform_os.as_deref(),
            hostname: info.hostname.as_deref(),
            cwd: info.cwd.as_ref().map(native),
            home_dir: info.home_dir.as_ref().map(native),
            temp_dir: info.temp_dir.as_ref().map(native),
            temporary_directories: info.temporary_directories.as_deref().map(all),
            prepend_path_dirs: all(&info.prepend_path_dirs),
            capabilities: &info.capabilities,
            features,
        }
    }

    fn json(&self) -> Result<String, String> {
        let text = serde_json::to_string(self).map_err(|error| error.to_string())?;
        Ok(text + "\n")
    }

    /// One fact a line. What is not known is left out.
    fn text(&self) -> String {
        let list = |names: Vec<&str>| (!names.is_empty()).then(|| names.join(" "));
        let facts = [
            ("system", self.platform_os.map(Into::into)),
            ("host", self.hostname.map(Into::into)),
            ("shell", Some(format!("{} ({})", self.shell.name, self.shell.path))),
            ("directory", self.cwd.clone()),
            ("home", self.home_dir.clone()),
            ("temporary", self.temp_dir.clone()),
            ("executor", Some(self.executor_version.into())),
            ("build", self.provider_id.map(Into::into)),
            ("capabilities", list(self.capabilities.iter().map(String::as_str).collect())),
            ("features", list(self.features.clone())),
        ];
        let line = |(name, fact): (&str, Option<String>)| {
            // What a place says of itself must not play with the terminal.
            let shown: String = fact?.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            Some(format!("{name:<13} {shown}\n"))
        };
        facts.into_iter().filter_map(line).collect()
    }
}
