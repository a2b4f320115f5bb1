//! Tensor files: written by a few threads, from copies, in bounded memory.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use trainmon_core::{Dtype, Shape};
use trainmon_dump::capture::Hole;
use trainmon_dump::tensor_file::Buffer;
use trainmon_dump::tensor_file::write::WriteError;

use crate::file_writer::{Content, FileWriter, Writing, WrittenFile};
use crate::spare::SpareMemory;

/// Threads that write. They wait for the disk, not for a core.
const WRITERS: usize = 2;
/// Bytes of tensors that wait, from which on used memory is worth a wait: a core's part of a level-3 cache.
const IN_CACHE: usize = 32 << 20;
/// A file system that takes longer than this (1 GB/s) is no memory, and is not waited for.
const SLOWEST_BYTES_PER_MICROSECOND: u64 = 1_000;

/// A tensor that becomes a file.
#[derive(Clone, Debug)]
pub(crate) struct TensorFile<'p> {
    /// Filled with its name when it is whole.
    pub(crate) hole: Hole,
    /// The value's place, of which its name is made.
    pub(crate) path: &'p str,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Shape,
}

/// One file to write.
struct Job {
    hole: Hole,
    name: String,
    content: Content,
    bytes: Buffer,
}

/// Told of each file: its hole, and its name and what it took or why there is none.
pub(crate) type Done = Box<dyn Fn(Hole, Result<(&str, WrittenFile), WriteError>) + Send + Sync>;

/// The threads and what waits for them.
pub(crate) struct Files {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    /// Bytes that may wait.
    bound: usize,
    writer: FileWriter,
    queue: Mutex<Queue>,
    /// Something was taken from the queue, or is finished.
    changed: Condvar,
    spare: SpareMemory,
    done: Done,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Bytes of jobs that wait or are being written.
    bytes: usize,
    /// What is being written.
    running: Vec<Content>,
    /// Jobs whose bytes are being copied.
    reserved: usize,
    is_closed: bool,
    /// Temporary names given.
    names: u64,
}

impl Queue {
    /// Whether every file is written.
    fn is_idle(&self) -> bool {
        self.jobs.is_empty() && self.running.is_empty() && self.reserved == 0
    }

    /// The next job, with a temporary name for its file. A tensor waits while one that may be the same is being written: it is
    /// held against its file.
    fn next(&mut self) -> Option<(Job, String)> {
        let place = self.jobs.iter().position(|job| !self.running.contains(&job.content))?;
        let job = self.jobs.remove(place)?;
        self.running.push(job.content);
        self.names += 1;
        Some((job, format!(".{}.tmp", self.names)))
    }
}

impl Files {
    /// Starts the threads. They write into `directory` and follow no link.
    pub(crate) fn start(
        directory: OwnedFd,
        writing: Writing,
        bound: usize,
        spare: SpareMemory,
        done: Done,
    ) -> io::Result<Self> {
        let (queue, changed, writer) = (Mutex::default(), Condvar::new(), FileWriter::new(directory, writing));
        let shared = Arc::new(Shared { bound, writer, queue, changed, spare, done });
        let files = Self { shared: Arc::clone(&shared), threads: Mutex::default() };
        for _ in 0..WRITERS {
            let shared = Arc::clone(&shared);
            match std::thread::Builder::new().name("trainmon-capture".to_owned()).spawn(move || shared.run()) {
                Ok(thread) => files.threads.lock().push(thread),
                Err(refused) => {
                    files.close();
                    return Err(refused);
                }
            }
        }
        Ok(files)
    }

    /// Takes a copy of a tensor, and waits while more than the bound would be waiting. One tensor larger than the bound is
    /// taken when it is alone. `copy` gives the CRC-32 of what it copied. `false`: there is no memory for the copy (a tensor may
    /// be far larger than what it is a view of).
    pub(crate) fn put(
        &self,
        file: &TensorFile<'_>,
        name: String,
        size: usize,
        copy: impl FnOnce(&mut [u8]) -> u32,
    ) -> bool {
        if size > self.shared.bound && !fits_memory(size) {
            return false;
        }
        let reserved = Reserved::wait(&self.shared, size);
        let Ok(mut bytes) = self.memory(size) else { return false };
        let content = Content { crc: copy(&mut bytes), dtype: file.dtype, shape: file.shape };
        reserved.become_job(Job { hole: file.hole, name, content, bytes });
        true
    }

    /// Memory for a copy. Where the writers are behind, that of a tensor that is written soon is waited for: it is in the cache,
    /// and the kernel need not make its pages. A disk that takes longer is not waited for.
    fn memory(&self, size: usize) -> io::Result<Buffer> {
        let deadline = Instant::now() + Duration::from_micros(size as u64 / SLOWEST_BYTES_PER_MICROSECOND);
        let mut queue = self.shared.queue.lock();
        loop {
            if let Some(kept) = self.shared.spare.kept(size) {
                return Ok(kept);
            }
            // This one is among them.
            let are_behind =
                queue.jobs.len() + queue.running.len() + queue.reserved > WRITERS + 1 && queue.bytes > IN_CACHE;
            if !are_behind || self.shared.changed.wait_until(&mut queue, deadline).timed_out() {
                break;
            }
        }
        drop(queue);
        Buffer::zeros(size)
    }

    /// Waits until every file is written.
    pub(crate) fn drain(&self) {
        let mut queue = self.shared.queue.lock();
        while !queue.is_idle() {
            self.shared.changed.wait(&mut queue);
        }
    }

    /// As [`drain`](Self::drain), for so long at most. Whether every file is written.
    pub(crate) fn drain_for(&self, at_most: Duration) -> bool {
        let deadline = Instant::now() + at_most;
        let mut queue = self.shared.queue.lock();
        while !queue.is_idle() {
            if self.shared.changed.wait_until(&mut queue, deadline).timed_out() {
                return queue.is_idle();
            }
        }
        true
    }

    /// Files and bytes that wait.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        let queue = self.shared.queue.lock();
        (queue.jobs.len() + queue.running.len(), queue.bytes)
    }

    /// Ends the threads, once everything is written.
    pub(crate) fn close(&self) {
        self.shared.queue.lock().is_closed = true;
        self.shared.changed.notify_all();
        for thread in self.threads.lock().drain(..) {
            // A writer that panicked has told what it could not write.
            let _ended = thread.join().is_ok();
        }
    }
}

/// Room for a copy. Dropped before it became a job, say in a panic, it is given back.
struct Reserved<'s> {
    shared: &'s Shared,
    size: usize,
}

impl<'s> Reserved<'s> {
    fn wait(shared: &'s Shared, size: usize) -> Self {
        let mut queue = shared.queue.lock();
        while queue.bytes > 0 && queue.bytes.saturating_add(size) > shared.bound {
            shared.changed.wait(&mut queue);
        }
        queue.bytes += size;
        queue.reserved += 1;
        Self { shared, size }
    }

    fn become_job(mut self, job: Job) {
        let mut queue = self.shared.queue.lock();
        queue.jobs.push_back(job);
        // The bytes are the job's now.
        queue.bytes += self.size;
        drop(queue);
        self.give_back();
        std::mem::forget(self);
    }

    fn give_back(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.bytes -= self.size;
        queue.reserved -= 1;
        drop(queue);
        self.shared.changed.notify_all();
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Whether a copy larger than the bound may be tried: beside it the training goes on. Where the system does not tell, it is.
fn fits_memory(size: usize) -> bool {
    let told = std::fs::read_to_string("/proc/meminfo").ok();
    let available = told.as_deref().and_then(|text| text.lines().find_map(|line| line.strip_prefix("MemAvailable:")));
    let kib = available.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.is_none_or(|kib| size as u64 / 1024 < kib / 2)
}

impl Shared {
    fn run(&self) {
        while let Some((job, temporary)) = self.next() {
            self.work(job, &temporary);
        }
    }

    fn work(&self, job: Job, temporary: &str) {
        let Job { hole, name, content, bytes } = job;
        let size = bytes.len();
        let written = catch_unwind(AssertUnwindSafe(|| {
            let (written, bytes) = self.writer.write(&name, content, bytes, temporary);
            // Half of the bound, so that what waits and what is kept stay near it.
            if let Some(bytes) = bytes {
                self.spare.give(bytes, self.bound / 2);
            }
            (self.done)(hole, written.map(|file| (&*name, file)));
        }));
        if written.is_err() {
            let panicked = WriteError::Write(io::Error::other("its writer panicked"));
            let _told = catch_unwind(AssertUnwindSafe(|| (self.done)(hole, Err(panicked)))).is_ok();
        }
        let mut queue = self.queue.lock();
        if let Some(place) = queue.running.iter().position(|running| *running == content) {
            queue.running.swap_remove(place);
        }
        queue.bytes -= size;
        drop(queue);
        self.changed.notify_all();
    }

    fn next(&self) -> Option<(Job, String)> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(next) = queue.next() {
                return Some(next);
            }
            if queue.is_closed && queue.reserved == 0 && queue.jobs.is_empty() {
                return None;
            }
            self.changed.wait(&mut queue);
        }
    }
}
