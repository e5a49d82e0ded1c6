//! What the properties are tried on.

use bytes::Bytes;
use longarm::PathUri;
use longarm::event::OutputStream;
use longarm::request::{ProcessId, Signal, ThreadId};
use longarm::wire::RequestId;
use longarm::wire::extension::{Limit, Size, StartExtension, TotalBytes};
use longarm::wire::process::{EnvPolicy, Inherit, Metadata, RawObject, StartParams};
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;

pub(crate) fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            " ",
            "\n",
            "\"",
            "\\",
            "\"a\"",
            "\"b\"",
            "\"\\u0061\"",
            "\"a\":",
            "\"b\":",
            "\"\\ud83d\\ude00\"",
            "\"\\ud83d\"",
            "\\u0041",
            "1",
            "0",
            "-",
            ".5",
            "e-2",
            "true",
            "false",
            "null",
            "nul",
            "\"\":",
            "{}",
            "[]",
            "=",
            "A",
        ])
        .prop_map(String::from),
        any::<char>().prop_map(String::from),
    ]
}

pub(crate) fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f64>()
            .prop_filter("JSON has no infinity", |number| number.is_finite())
            .prop_map(|number| format!("{number:e}")),
        ".{0,5}".prop_map(|text| serde_json::to_string(&text).unwrap()),
    ];
    leaf.prop_recursive(6, 60, 8, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(|items| format!("[{}]", items.join(", "))),
            vec(("[ab]{0,3}", inner), 0..6).prop_map(|members| {
                let members: Vec<String> =
                    members.into_iter().map(|(key, value)| format!("\"{key}\" :{value}")).collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}

pub(crate) fn request_id() -> impl Strategy<Value = RequestId> {
    prop_oneof![any::<i64>().prop_map(RequestId::Number), ".{0,9}".prop_map(|text| RequestId::from(&*text))]
}

pub(crate) fn process_id() -> impl Strategy<Value = ProcessId> {
    prop_oneof!["[a-z0-9-]{0,20}", ".{0,9}"].prop_map(ProcessId::new)
}

pub(crate) fn stream() -> impl Strategy<Value = OutputStream> {
    prop::sample::select(vec![OutputStream::Stdout, OutputStream::Stderr, OutputStream::Pty])
}

pub(crate) fn chunk() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..100).prop_map(Bytes::from)
}

pub(crate) fn signal() -> impl Strategy<Value = Signal> {
    let named: Vec<Signal> = Signal::named().collect();
    prop_oneof![prop::sample::select(named), (32..65).prop_map(Signal::Other)]
}

pub(crate) fn limit() -> impl Strategy<Value = Limit> {
    prop::sample::select(vec![Limit::Time, Limit::Output])
}

pub(crate) fn totals() -> impl Strategy<Value = TotalBytes> {
    any::<[u64; 3]>().prop_map(|[stdout, stderr, pty]| TotalBytes { stdout, stderr, pty })
}

pub(crate) fn start_params() -> impl Strategy<Value = StartParams> {
    let policy = (any::<bool>(), vec(".{0,9}", 0..3), btree_map(".{0,9}", ".{0,9}", 0..3), 0..3_usize).prop_map(
        |(ignore_default_excludes, exclude, set, inherit)| EnvPolicy {
            inherit: [Inherit::All, Inherit::Core, Inherit::None][inherit],
            ignore_default_excludes,
            include_only: exclude.clone(),
            exclude,
            set,
        },
    );
    let metadata = (of(any::<u128>()), of(".{0,9}"))
        .prop_map(|(id, tool_call_id)| Metadata { thread_id: id.map(ThreadId::from_u128), tool_call_id });
    let longarm = (of(any::<(u16, u16)>()), of(any::<u64>()), of(any::<u64>()), of(any::<u64>()), any::<bool>())
        .prop_map(|(size, time_limit_ms, output_limit_bytes, stop_grace_ms, contain)| StartExtension {
            terminal: size.map(|(rows, cols)| Size { rows, cols }),
            time_limit_ms,
            output_limit_bytes,
            stop_grace_ms,
            contain,
        });
    let raw =
        vec(any::<i64>(), 0..3).prop_map(|numbers| RawObject::from_json(&format!(r#"{{"a": {numbers:?} }}"#)).unwrap());
    (
        (process_id(), vec(".{0,9}", 0..4), "[a-zé %]{0,9}", btree_map(".{0,9}", ".{0,9}", 0..4)),
        (any::<[bool; 3]>(), of(".{0,9}"), of(policy), of(metadata), of(longarm), of(raw)),
    )
        .prop_map(|((process_id, argv, cwd, env), (flags, arg0, env_policy, metadata, longarm, raw))| {
            StartParams {
                process_id,
                argv,
                cwd: PathUri::parse(&format!("file:///{cwd}")).unwrap(),
                env,
                tty: flags[0],
                pipe_stdin: flags[1],
                arg0,
                env_policy,
                metadata,
                sandbox: raw.clone(),
                enforce_managed_network: flags[2],
                managed_network: raw.clone(),
                network_proxy: raw.clone(),
                shell_snapshot: raw,
                longarm,
            }
        })
}
