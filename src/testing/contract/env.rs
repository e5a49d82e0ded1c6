//! The environment and the arguments of a child.

use std::collections::BTreeMap;

use super::context::Context;
use crate::env_policy::ShellEnvPolicy;
use crate::request::{ExecRequest, Metadata, ThreadId};

cases! {"env":
    an_exact_environment_is_exact,
    the_policy_comes_first_and_the_request_over_it [EnvPolicies],
    reserved_names_never_reach_a_child [EnvPolicies],
    metadata_reaches_the_child [EnvPolicies],
    arguments_arrive_unchanged,
    the_program_can_be_told_another_name,
    a_program_is_found_on_the_path_of_the_child,
    children_inherit_nothing_of_their_executor [CleanChildren],
}

async fn variables(cx: &Context, request: ExecRequest) -> BTreeMap<String, String> {
    let output = cx.output(request).await;
    assert!(output.status.success(), "{}", output.stderr.to_text());
    let text = output.stdout.to_text();
    let items = text.split_terminator('\0').filter_map(|item| item.split_once('='));
    items.map(|(name, value)| (name.into(), value.into())).collect()
}

fn expected<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect()
}

async fn an_exact_environment_is_exact(cx: Context) {
    let request = cx.child(&["env"]).env_clear().env("A", "1").env("EMPTY", "").env("B", "two words = \u{20ac}\n");
    let found = variables(&cx, request).await;
    assert_eq!(found, expected([("A", "1"), ("EMPTY", ""), ("B", "two words = \u{20ac}\n")]));
    assert_eq!(variables(&cx, cx.child(&["env"]).env_clear()).await, expected([]));
}

async fn the_policy_comes_first_and_the_request_over_it(cx: Context) {
    let policy =
        ShellEnvPolicy::inherit_none().set("A", "policy").set("B", "policy").set("C", "gone").include_only("[AB]");
    let policy = policy.include_only("a").include_only("b");
    let request = cx.child(&["env"]).env_policy(policy).env("B", "request").env("D", "request");
    let found = variables(&cx, request).await;
    assert_eq!(found, expected([("A", "policy"), ("B", "request"), ("D", "request")]));
}

async fn reserved_names_never_reach_a_child(cx: Context) {
    let policy = ShellEnvPolicy::inherit_none().set("NODE_REPL_AUTH_TOKEN", "secret");
    let request = cx.child(&["env"]).env_policy(policy).env("openai_Identity_Token_File", "secret").env("A", "1");
    assert_eq!(variables(&cx, request).await, expected([("A", "1")]));
}

async fn metadata_reaches_the_child(cx: Context) {
    let metadata = Metadata::new(Some(ThreadId::from_u128(7)), Some("call_1".into()));
    let found = variables(&cx, cx.child(&["env"]).env_clear().metadata(metadata)).await;
    let thread = "00000000-0000-0000-0000-000000000007";
    assert_eq!(found, expected([("CODEX_THREAD_ID", thread), ("CODEX_TOOL_CALL_ID", "call_1")]));
}

async fn arguments_arrive_unchanged(cx: Context) {
    let strange = ["", " ", "a b", "\"'\\$(x)*?", "--", "\u{20ac}", "new\nline"];
    let output = cx.output(cx.child(&[&["argv"][..], &strange].concat())).await;
    let text = output.stdout.to_text();
    let found: Vec<_> = text.split_terminator('\0').skip(1).collect();
    assert_eq!(found, [&["argv"][..], &strange].concat());
}

async fn the_program_can_be_told_another_name(cx: Context) {
    let output = cx.output(cx.child(&["argv"]).arg0("-login")).await;
    assert_eq!(output.stdout.to_text(), "-login\0argv\0");
}

async fn a_program_is_found_on_the_path_of_the_child(cx: Context) {
    let (dir, name) = (cx.child_path().parent().unwrap(), cx.child_path().file_name().unwrap());
    let request = cx.child_at(name, &["say", "found"]).env_clear().env("PATH", dir);
    assert_eq!(cx.output(request).await.stdout.to_text(), "found\n");
}

async fn children_inherit_nothing_of_their_executor(cx: Context) {
    let output = cx.output(cx.child(&["inherited"])).await;
    let facts = output.stdout.to_text();
    let mut lines = facts.lines();
    assert_eq!(lines.next(), Some("descriptors []"));
    assert_eq!(lines.next(), Some("blocked []"));
    assert_eq!(lines.next(), Some("ignored []"));
    assert_eq!(lines.next(), Some("group leader true"));
}
