//! What a child inherits: the variables of its place, through a policy, with the request's own laid over them.
//! The base is an explicit value here, so nothing of this program's own environment is involved; a policy of one's own is
//! an implementation of one trait. Values never show in `Debug`.

use std::error::Error;

use longarm::env_policy::{EnvMap, EnvPolicy};
use longarm::{CollectLimits, Environment, ExecRequest, Local, LocalConfig, ShellEnvPolicy};

/// Inherits what the application has marked as its own.
#[derive(Debug)]
struct OnlyMarked;

impl EnvPolicy for OnlyMarked {
    fn apply(&self, base: &EnvMap, _windows: bool) -> EnvMap {
        let marked = base.iter().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"APP_"));
        marked.map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let base = [("PATH", "/usr/bin:/bin"), ("HOME", "/root"), ("APP_MODE", "fast"), ("API_TOKEN", "hunter2")];
    let base: EnvMap = base.map(|(name, value)| (name.into(), value.into())).into();
    let environment = Environment::from(Local::new(LocalConfig::default().base_env(base).default_cwd("/")));

    let request = || ExecRequest::new(["env"]);
    let without_secrets = ShellEnvPolicy::inherit_all().ignore_default_excludes(false).set("LANG", "C");
    let cases = [
        ("everything (the default)", request()),
        ("without what looks like a secret", request().env_policy(without_secrets)),
        ("paths, locale and user only", request().env_policy(ShellEnvPolicy::inherit_core())),
        ("a policy of one's own", request().env_policy(OnlyMarked).env("PATH", "/usr/bin:/bin")),
        ("exactly what the request says", request().env_clear().env("PATH", "/usr/bin:/bin").env("ONLY", "this")),
    ];
    for (title, request) in cases {
        let shown = format!("{request:?}");
        assert!(!shown.contains("hunter2"), "a request never shows values");
        let output = environment.spawn(request).await?.output(CollectLimits::default()).await?;
        let names: Vec<_> =
            output.stdout.to_text().lines().filter_map(|line| Some(line.split_once('=')?.0.to_owned())).collect();
        println!("{title}: {}", names.join(" "));
    }
    environment.close().await;
    Ok(())
}
