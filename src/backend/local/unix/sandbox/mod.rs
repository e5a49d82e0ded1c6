//! Sandboxes for processes, as Linux makes them.

#[cfg_attr(not(test), expect(dead_code, reason = "the plans of sandboxed processes hold names with it"))]
pub(in crate::backend::local) mod placeholder;
