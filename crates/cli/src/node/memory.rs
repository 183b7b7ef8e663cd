//! Memory of large requests, which returns to the system when they are answered.

/// Bytes of a block that is large. Smaller ones stay with the process, for the next request.
#[cfg(target_env = "gnu")]
const LARGE_BLOCK_BYTES: libc::c_int = 1 << 20;

/// Lets blocks of a MiB and more be mapped by themselves, and so unmapped when they are freed. The C library raises that
/// size each time such a block is freed, up to 32 MiB. A server would then keep several times the largest body for good.
pub fn give_back_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets a parameter of the allocator, which is thread-safe.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES);
    }
}
