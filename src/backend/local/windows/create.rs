//! The making of a process.

use std::io;
use std::os::windows::io::OwnedHandle;
use std::sync::Arc;

use windows::Win32::Foundation::HANDLE;
use windows::Win32::System::Threading::{
    CREATE_NEW_PROCESS_GROUP, CREATE_NO_WINDOW, CREATE_SUSPENDED, CREATE_UNICODE_ENVIRONMENT, CreateProcessAsUserW,
    CreateProcessW, DeleteProcThreadAttributeList, EXTENDED_STARTUPINFO_PRESENT, InitializeProcThreadAttributeList,
    LPPROC_THREAD_ATTRIBUTE_LIST, PROC_THREAD_ATTRIBUTE_HANDLE_LIST, PROC_THREAD_ATTRIBUTE_PSEUDOCONSOLE,
    PROCESS_INFORMATION, STARTF_USESTDHANDLES, STARTUPINFOEXW, UpdateProcThreadAttribute,
};
use windows::core::{PCWSTR, PWSTR};

use super::pipe::make_inheritable;
use super::system::{check, own, raw, terminated};
use super::terminal::Console;

/// What a process is made of.
pub(super) struct Creation<'a> {
    /// The file, absolute.
    pub(super) program: &'a [u16],
    /// Terminated. The system writes to it.
    pub(super) command_line: Vec<u16>,
    /// With its terminators.
    pub(super) environment: &'a [u16],
    pub(super) cwd: &'a [u16],
    pub(super) attachment: Attachment,
    /// It uses our console, unless it has a terminal.
    pub(super) shares_console: bool,
    /// With which rights it runs, if not with ours.
    pub(super) token: Option<&'a OwnedHandle>,
}

/// Where its standard streams go. Closed with it.
pub(super) enum Attachment {
    Handles(StandardHandles),
    Console {
        console: Arc<Console>,
        /// The console's ends of its streams. It has duplicates, so that ours are closed when the process is made.
        _ends: [OwnedHandle; 2],
    },
}

/// The three streams, and the only handles that the process inherits.
pub(super) struct StandardHandles {
    pub(super) stdin: OwnedHandle,
    pub(super) stdout: OwnedHandle,
    pub(super) stderr: OwnedHandle,
}

/// A process that does not run yet.
pub(super) struct Created {
    pub(super) id: u32,
    pub(super) process: OwnedHandle,
    pub(super) thread: OwnedHandle,
}

/// Why there is none.
pub(super) enum Failure {
    /// Something before the process.
    Prepare(io::Error),
    /// The system did not make the process: the program or the directory is not what it should be.
    Create(io::Error),
}

/// Makes a process whose only thread is suspended.
pub(super) fn create(creation: Creation<'_>) -> Result<Created, Failure> {
    match &creation.attachment {
        Attachment::Handles(handles) => {
            let list = [raw(&handles.stdin), raw(&handles.stdout), raw(&handles.stderr)];
            for handle in [&handles.stdin, &handles.stdout, &handles.stderr] {
                make_inheritable(handle).map_err(Failure::Prepare)?;
            }
            let attributes = Attributes::handles(&list).map_err(Failure::Prepare)?;
            start(&creation, &attributes, list)
        }
        Attachment::Console { console, .. } => console
            .with_open(|console| {
                let attributes = Attributes::console(console.0).map_err(Failure::Prepare)?;
                // Without handles, but with the flag that says they are given: else the process would get ours, where
                // they go to a file or a pipe, in place of the console's.
                start(&creation, &attributes, [HANDLE::default(); 3])
            })
            .unwrap_or_else(|| Err(Failure::Prepare(io::ErrorKind::NotConnected.into()))),
    }
}

fn start(creation: &Creation<'_>, attributes: &Attributes<'_>, standard: [HANDLE; 3]) -> Result<Created, Failure> {
    let mut startup = STARTUPINFOEXW { lpAttributeList: attributes.list, ..STARTUPINFOEXW::default() };
    startup.StartupInfo.cb = size_of::<STARTUPINFOEXW>() as u32;
    startup.StartupInfo.dwFlags = STARTF_USESTDHANDLES;
    [startup.StartupInfo.hStdInput, startup.StartupInfo.hStdOutput, startup.StartupInfo.hStdError] = standard;

    let mut flags = CREATE_SUSPENDED | CREATE_UNICODE_ENVIRONMENT | EXTENDED_STARTUPINFO_PRESENT;
    let inherits = matches!(creation.attachment, Attachment::Handles(_));
    if inherits {
        // Out of reach of the Ctrl-C that ends us, and within that of a Ctrl-Break of ours. On a terminal of its own it
        // would make the process ignore the Ctrl-C of that terminal.
        flags |= CREATE_NEW_PROCESS_GROUP;
        if !creation.shares_console {
            flags |= CREATE_NO_WINDOW;
        }
    }
    let program = terminated(creation.program);
    let cwd = terminated(creation.cwd);
    // The system may write to it.
    let mut command_line = creation.command_line.clone();
    let mut info = PROCESS_INFORMATION::default();
    let (program, cwd) = (PCWSTR(program.as_ptr()), PCWSTR(cwd.as_ptr()));
    let command_line = Some(PWSTR(command_line.as_mut_ptr()));
    let environment = Some(creation.environment.as_ptr().cast());
    let (startup, info_out) = ((&raw const startup).cast(), &raw mut info);
    // SAFETY: the program, the command line and the directory are terminated, and the environment has both of its
    // terminators; they, the start-up information and its attributes outlive the call. The flags say that the
    // environment is UTF-16 and that the information is the extended one, which its `cb` says too. The handles that are
    // inherited are open, since `creation` owns them, as is that of the token, which `creation` borrows.
    let created = unsafe {
        match creation.token {
            None => {
                CreateProcessW(program, command_line, None, None, inherits, flags, environment, cwd, startup, info_out)
            }
            Some(token) => CreateProcessAsUserW(
                Some(raw(token)),
                program,
                command_line,
                None,
                None,
                inherits,
                flags,
                environment,
                cwd,
                startup,
                info_out,
            ),
        }
    };
    check(created).map_err(Failure::Create)?;
    // SAFETY: the call returned two new handles.
    let (process, thread) = unsafe { (own(info.hProcess), own(info.hThread)) };
    Ok(Created { id: info.dwProcessId, process, thread })
}

/// A list with one attribute of a process to be made.
struct Attributes<'a> {
    list: LPPROC_THREAD_ATTRIBUTE_LIST,
    /// What the list is kept in, aligned as any structure of the system may need it.
    _memory: Vec<u128>,
    /// The list refers to its values.
    _values: std::marker::PhantomData<&'a [HANDLE]>,
}

impl<'a> Attributes<'a> {
    /// Inherits these handles and no others. They must be inheritable, and differ.
    fn handles(handles: &'a [HANDLE]) -> io::Result<Self> {
        let value = handles.as_ptr().cast();
        // SAFETY: the value of this attribute is an array of handles; it outlives the list by its lifetime.
        unsafe { Self::new(PROC_THREAD_ATTRIBUTE_HANDLE_LIST, value, size_of_val(handles)) }
    }

    /// Attaches to this console, which must stay open until the process is made.
    fn console(console: isize) -> io::Result<Self> {
        // SAFETY: the value of this attribute is the console's handle itself, not a pointer to it.
        unsafe { Self::new(PROC_THREAD_ATTRIBUTE_PSEUDOCONSOLE, console as *const _, size_of::<isize>()) }
    }

    /// # Safety
    ///
    /// `value` and `bytes` are what the attribute wants, and what they refer to lives for `'a`.
    unsafe fn new(attribute: u32, value: *const core::ffi::c_void, bytes: usize) -> io::Result<Self> {
        let mut needed = 0;
        // SAFETY: without a list the call only tells the length that one needs. That it does so by an error is expected;
        // whether it did shows in the length.
        let _ = unsafe { InitializeProcThreadAttributeList(None, 1, None, &raw mut needed) };
        if needed == 0 {
            return Err(io::Error::last_os_error());
        }
        let mut memory = vec![0u128; needed.div_ceil(size_of::<u128>())];
        let list = LPPROC_THREAD_ATTRIBUTE_LIST(memory.as_mut_ptr().cast());
        // SAFETY: the list has the length that the system asked for, and does not move: it is on the heap.
        check(unsafe { InitializeProcThreadAttributeList(Some(list), 1, None, &raw mut needed) })?;
        // From here on its destructor is due.
        let attributes = Self { list, _memory: memory, _values: std::marker::PhantomData };
        // SAFETY: the list is initialised, with room for one attribute; the rest is the caller's promise.
        check(unsafe { UpdateProcThreadAttribute(list, 0, attribute as usize, Some(value), bytes, None, None) })?;
        Ok(attributes)
    }
}

impl Drop for Attributes<'_> {
    fn drop(&mut self) {
        // SAFETY: the list is initialised and its memory is freed only after this.
        unsafe { DeleteProcThreadAttributeList(self.list) };
    }
}
