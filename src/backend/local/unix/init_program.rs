//! The first process of a PID namespace, as a program of its own: a few instructions in a file without a name.
//!
//! It is no copy of this process, so that it neither holds this process's memory nor depends on it. What it does:
//!
//! ```text
//! read a byte from descriptor 3
//!   a byte n:  send signal n to everybody else; if there is nobody else, end
//!   the end:   nobody gives orders any more: wait for children until there are none, and end once nobody else is left;
//!              with an argument besides its name, end at once
//! ```
//!
//! Signal 0 is none, so that a byte 0 asks it to end if it is alone. It is executed with `SIGCHLD` ignored, so that the
//! kernel reaps the orphans of the namespace, and it never handles a signal. When it ends, the kernel kills whoever is
//! left in the namespace.

/// The program as a file that the system can execute; none for kinds of processors that it is not written for.
pub(super) fn image() -> Option<Vec<u8>> {
    let code = code()?;
    let mut file = Vec::with_capacity(HEADERS + code.len());
    // The header of an ELF file: 64 bits, least byte first, an executable.
    file.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    file.extend_from_slice(&2_u16.to_le_bytes());
    file.extend_from_slice(&MACHINE.to_le_bytes());
    file.extend_from_slice(&1_u32.to_le_bytes());
    // Where it begins, where the segments are listed, and that there are no sections.
    for place in [ADDRESS + HEADERS as u64, ELF_HEADER as u64, 0] {
        file.extend_from_slice(&place.to_le_bytes());
    }
    file.extend_from_slice(&0_u32.to_le_bytes());
    for size in [ELF_HEADER as u16, SEGMENT_HEADER as u16, 2, 0, 0, 0] {
        file.extend_from_slice(&size.to_le_bytes());
    }
    // The whole file, readable and executable; and a stack that is not.
    let whole = (HEADERS + code.len()) as u64;
    for (kind, flags, address, size, align) in [(1_u32, 5_u32, ADDRESS, whole, PAGE), (0x6474_e551, 6, 0, 0, 16)] {
        file.extend_from_slice(&kind.to_le_bytes());
        file.extend_from_slice(&flags.to_le_bytes());
        for number in [0, address, address, size, size, align] {
            file.extend_from_slice(&number.to_le_bytes());
        }
    }
    debug_assert_eq!(file.len(), HEADERS);
    file.extend_from_slice(code);
    Some(file)
}

const ELF_HEADER: usize = 64;
const SEGMENT_HEADER: usize = 56;
const HEADERS: usize = ELF_HEADER + 2 * SEGMENT_HEADER;
const ADDRESS: u64 = 0x40_0000;
/// The largest that Linux has on these processors.
const PAGE: u64 = 0x1_0000;

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const MACHINE: u16 = 0;

/// The instructions, which stand in this function and are jumped over.
#[cfg(all(target_arch = "x86_64", target_pointer_width = "64"))]
#[inline(never)]
fn code() -> Option<&'static [u8]> {
    let (start, end): (*const u8, *const u8);
    // SAFETY: only computes two addresses.
    unsafe {
        core::arch::asm!(
            "lea {start}, [rip + 9f]",
            "lea {end}, [rip + 8f]",
            "jmp 8f",
            "9:",
            "mov rbx, [rsp]",          // how many arguments there are
            "2:",
            "xor eax, eax",            // read(3, below the stack, 1)
            "mov edi, 3",
            "lea rsi, [rsp - 64]",
            "mov edx, 1",
            "syscall",
            "cmp rax, -4",             // EINTR
            "je 2b",
            "cmp rax, 1",
            "jne 4f",
            "movzx esi, byte ptr [rsp - 64]",
            "mov rdi, -1",             // kill(-1, the byte)
            "mov eax, 62",
            "syscall",
            "cmp rax, -3",             // ESRCH
            "jne 2b",
            "jmp 6f",
            "4:",
            "cmp rbx, 1",
            "jne 6f",
            "mov rdi, -1",             // wait4(-1, null, 0, null)
            "xor esi, esi",
            "xor edx, edx",
            "xor r10d, r10d",
            "mov eax, 61",
            "syscall",
            "cmp rax, -10",            // ECHILD
            "jne 4b",
            "mov rdi, -1",             // kill(-1, 0)
            "xor esi, esi",
            "mov eax, 62",
            "syscall",
            "cmp rax, -3",             // ESRCH
            "je 6f",
            "lea rdi, [rip + 7f]",     // nanosleep(a second, null)
            "xor esi, esi",
            "mov eax, 35",
            "syscall",
            "jmp 4b",
            "6:",
            "xor edi, edi",            // exit(0)
            "mov eax, 60",
            "syscall",
            "ud2",
            "7:",
            ".quad 1",
            ".quad 0",
            "8:",
            start = out(reg) start,
            end = out(reg) end,
            options(nomem, nostack, pure),
        );
    }
    // SAFETY: both addresses are in the text of this function, which is readable and never changes.
    Some(unsafe { std::slice::from_raw_parts(start, end.addr() - start.addr()) })
}

/// As above, in the words of another processor.
#[cfg(target_arch = "aarch64")]
#[inline(never)]
fn code() -> Option<&'static [u8]> {
    let (start, end): (*const u8, *const u8);
    // SAFETY: only computes two addresses.
    unsafe {
        core::arch::asm!(
            "adr {start}, 9f",
            "adr {end}, 8f",
            "b 8f",
            "9:",
            "ldr x19, [sp]",           // how many arguments there are
            "2:",
            "mov x0, #3",              // read(3, below the stack, 1)
            "sub x1, sp, #64",
            "mov x2, #1",
            "mov x8, #63",
            "svc #0",
            "cmn x0, #4",              // EINTR
            "b.eq 2b",
            "cmp x0, #1",
            "b.ne 4f",
            "sub x1, sp, #64",
            "ldrb w1, [x1]",
            "mov x0, #-1",             // kill(-1, the byte)
            "mov x8, #129",
            "svc #0",
            "cmn x0, #3",              // ESRCH
            "b.ne 2b",
            "b 6f",
            "4:",
            "cmp x19, #1",
            "b.ne 6f",
            "mov x0, #-1",             // wait4(-1, null, 0, null)
            "mov x1, #0",
            "mov x2, #0",
            "mov x3, #0",
            "mov x8, #260",
            "svc #0",
            "cmn x0, #10",             // ECHILD
            "b.ne 4b",
            "mov x0, #-1",             // kill(-1, 0)
            "mov x1, #0",
            "mov x8, #129",
            "svc #0",
            "cmn x0, #3",              // ESRCH
            "b.eq 6f",
            "adr x0, 7f",              // nanosleep(a second, null)
            "mov x1, #0",
            "mov x8, #101",
            "svc #0",
            "b 4b",
            "6:",
            "mov x0, #0",              // exit(0)
            "mov x8, #93",
            "svc #0",
            "udf #0",
            ".balign 8",
            "7:",
            ".xword 1",
            ".xword 0",
            "8:",
            start = out(reg) start,
            end = out(reg) end,
            options(nomem, nostack, pure),
        );
    }
    // SAFETY: both addresses are in the text of this function, which is readable and never changes.
    Some(unsafe { std::slice::from_raw_parts(start, end.addr() - start.addr()) })
}

#[cfg(not(any(all(target_arch = "x86_64", target_pointer_width = "64"), target_arch = "aarch64")))]
fn code() -> Option<&'static [u8]> {
    None
}
