//! What every client may rely on in what it is sent, whatever the test is about.

use std::collections::HashMap;

use serde_json::Value;

/// The events of each process, as one connection was sent them.
#[derive(Debug, Default)]
pub(crate) struct Order {
    processes: HashMap<String, Sent>,
}

#[derive(Debug)]
struct Sent {
    last: u64,
    /// Whether it may have exited: an exit before the connection was there is not sent again.
    exited: Option<bool>,
    closed: bool,
}

impl Order {
    /// Takes in the next message: events come once each, by their numbers, without holes; one exit, then one close, the
    /// last of all. Only a new process of the same id begins again.
    pub(crate) fn check(&mut self, message: &Value) {
        let Some(method) = message["method"].as_str().filter(|method| method.starts_with("process/")) else { return };
        let process = message["params"]["processId"].as_str().expect("the process of an event");
        let seq = message["params"]["seq"].as_u64().expect("the number of an event");
        let sent = self.processes.entry(process.to_owned()).or_insert_with(|| {
            // What came before the connection was there is not sent over it.
            Sent { last: seq - 1, exited: (seq == 1).then_some(false), closed: false }
        });
        if sent.closed && seq == 1 {
            *sent = Sent { last: 0, exited: Some(false), closed: false };
        }
        assert!(!sent.closed, "after the close: {message}");
        assert_eq!(seq, sent.last + 1, "in order, and without holes: {message}");
        sent.last = seq;
        match method {
            "process/output" => {}
            "process/exited" => assert_ne!(sent.exited.replace(true), Some(true), "a second exit: {message}"),
            "process/closed" => {
                assert_ne!(sent.exited, Some(false), "without an exit: {message}");
                sent.closed = true;
            }
            other => panic!("what is {other:?}?"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(method: &str, seq: u64) -> Value {
        json!({"method": format!("process/{method}"), "params": {"processId": "p", "seq": seq}})
    }

    fn check(events: &[(&str, u64)]) -> bool {
        let events: Vec<_> = events.iter().map(|(method, seq)| event(method, *seq)).collect();
        std::panic::catch_unwind(|| {
            let mut order = Order::default();
            events.iter().for_each(|event| order.check(event));
        })
        .is_ok()
    }

    #[test]
    fn what_is_out_of_order_is_seen() {
        assert!(check(&[("output", 1), ("exited", 2), ("output", 3), ("closed", 4), ("output", 1)]));
        assert!(check(&[("output", 7), ("closed", 8)]), "exited before the connection was there");
        for wrong in [
            &[("output", 1), ("output", 1)][..],
            &[("output", 2), ("output", 1)],
            &[("output", 1), ("output", 3)],
            &[("output", 1), ("closed", 2)],
            &[("exited", 1), ("exited", 2)],
            &[("exited", 1), ("closed", 2), ("output", 3)],
            &[("exited", 1), ("closed", 2), ("closed", 2)],
        ] {
            assert!(!check(wrong), "{wrong:?}");
        }
    }
}
