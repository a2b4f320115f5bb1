//! The threads that write tensor files, and what they share with those that capture.

use std::io;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use trainmon_capture_files::Hole;
use trainmon_tensor_files::write::WriteError;

use crate::copies::{FurtherName, TensorCopy};
use crate::file_queue::{Job, Queue};
use crate::file_writer::{Bytes, Content, FileWriter, WrittenFile};
use crate::spare::SpareMemory;
use crate::speed::DiskSpeed;

/// Threads that write. They wait for the disk, not for a core.
pub(crate) const WRITERS: usize = 2;
/// Smaller tensors are copied in less time than their file is opened in.
pub(crate) const SMALLEST_IN_PLACE: usize = 256 << 10;

/// Told of each file: its hole, and its name and what it took or why there is none.
pub(crate) type Done = Box<dyn Fn(Hole, Result<(&str, WrittenFile), WriteError>) + Send + Sync>;

/// What waits to be written and how it is written: shared by the threads, and by those who give them files.
pub(crate) struct Writers {
    /// Bytes that may wait.
    pub(crate) bound: usize,
    pub(crate) writer: FileWriter,
    pub(crate) queue: Mutex<Queue>,
    /// There may be something to do for a writer.
    pub(crate) work: Condvar,
    /// Something was written, or given up.
    pub(crate) progress: Condvar,
    pub(crate) spare: SpareMemory,
    pub(crate) speed: DiskSpeed,
    pub(crate) done: Done,
}

impl Writers {
    /// Whether a copy would wait for the writers and not for the disk.
    pub(crate) fn is_behind(&self) -> bool {
        if !self.speed.is_fast() || self.writer.compresses() {
            return false;
        }
        // What waits for one that may be the same does not wait for a thread.
        let queue = self.queue.lock();
        queue.running.len() >= WRITERS && !queue.jobs.is_empty()
    }

    /// Cores that no writer keeps busy, the caller's among them.
    pub(crate) fn free_cores(&self) -> usize {
        let queue = self.queue.lock();
        cores().saturating_sub((queue.running.len() + queue.jobs.len()).min(WRITERS))
    }

    pub(crate) fn run(&self) {
        while let Some((job, temporary)) = self.next() {
            self.work(job, &temporary);
        }
    }

    /// Writes a file that waits. `false`: there is none that could be written now.
    pub(crate) fn work_once(&self) -> bool {
        let next = self.queue.lock().next();
        next.map(|(job, temporary)| self.work(job, &temporary)).is_some()
    }

    pub(crate) fn work(&self, job: Job, temporary: &str) {
        let Job { hole, name, copy } = job;
        let (content, size) = (copy.content, copy.bytes.len());
        self.write(hole, &name, content, &Bytes::Copied(&copy.bytes), temporary);
        for further in copy.take_names() {
            self.write_again(&further, &name, &copy, temporary);
        }
        self.queue.lock().copies.remove(&copy);
        self.let_go(copy);
        self.end(content, size);
    }

    /// Makes a further name of a copy's file, or where that cannot be a file of its own.
    fn write_again(&self, further: &FurtherName, file: &str, copy: &TensorCopy, temporary: &str) {
        let FurtherName { hole, name } = further;
        if self.writer.add_name(file, name).is_some() {
            let shared = copy.bytes.len() as u64;
            tell(|| (self.done)(*hole, Ok((name, WrittenFile { size: 0, shared }))));
        } else {
            self.write(*hole, name, copy.content, &Bytes::Copied(&copy.bytes), temporary);
        }
    }

    /// Keeps the memory of a copy that nobody else needs.
    pub(crate) fn let_go(&self, copy: Arc<TensorCopy>) {
        if let Some(copy) = Arc::into_inner(copy) {
            // Half of the bound, so that what waits and what is kept stay near it.
            self.spare.give(copy.bytes, self.bound / 2);
        }
    }

    /// Writes a file and tells of it, also where that panics. `false`, and nothing is told: the bytes changed meanwhile.
    pub(crate) fn write(&self, hole: Hole, name: &str, content: Content, bytes: &Bytes<'_>, temporary: &str) -> bool {
        let written = catch_unwind(AssertUnwindSafe(|| {
            let begin = Instant::now();
            let Some(written) = self.writer.write(name, content, bytes, temporary).transpose() else { return false };
            if let Ok(WrittenFile { size, shared: 0 }) = written
                && size >= SMALLEST_IN_PLACE as u64
            {
                self.speed.written(size, begin.elapsed());
            }
            (self.done)(hole, written.map(|file| (name, file)));
            true
        }));
        written.unwrap_or_else(|_| {
            let panicked = WriteError::Write(io::Error::other("its writer panicked"));
            tell(|| (self.done)(hole, Err(panicked)));
            true
        })
    }

    /// A file is written, of whose bytes so many waited.
    pub(crate) fn end(&self, content: Content, size: usize) {
        let mut queue = self.queue.lock();
        if let Some(place) = queue.running.iter().position(|running| *running == content) {
            queue.running.swap_remove(place);
        }
        queue.bytes -= size;
        let (has_jobs, is_closed) = (!queue.jobs.is_empty(), queue.is_closed);
        drop(queue);
        self.tell_progress(is_closed);
        if has_jobs {
            // One that may be the same has waited for this one.
            self.work.notify_one();
        }
    }

    /// Wakes who waits for files, and writers that may end.
    fn tell_progress(&self, is_closed: bool) {
        self.progress.notify_all();
        if is_closed {
            self.work.notify_all();
        }
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
            self.work.wait(&mut queue);
        }
    }
}

/// Room for a copy. Dropped before it became a job, say in a panic, it is given back.
pub(crate) struct Reserved<'s> {
    writers: &'s Writers,
    size: usize,
}

impl<'s> Reserved<'s> {
    pub(crate) fn wait(writers: &'s Writers, size: usize) -> Self {
        let mut queue = writers.queue.lock();
        while queue.bytes > 0 && queue.bytes.saturating_add(size) > writers.bound {
            writers.progress.wait(&mut queue);
        }
        queue.bytes += size;
        queue.reserved += 1;
        Self { writers, size }
    }

    /// A place among those who write, for one that copies nothing.
    pub(crate) fn without_memory(writers: &'s Writers) -> Self {
        writers.queue.lock().reserved += 1;
        Self { writers, size: 0 }
    }

    pub(crate) fn become_job(mut self, job: Job) {
        let mut queue = self.writers.queue.lock();
        queue.copies.insert(&job.copy);
        queue.jobs.push_back(job);
        // The bytes are the job's now.
        queue.bytes += self.size;
        drop(queue);
        self.writers.work.notify_one();
        self.give_back();
        std::mem::forget(self);
    }

    fn give_back(&mut self) {
        let mut queue = self.writers.queue.lock();
        queue.bytes -= self.size;
        queue.reserved -= 1;
        let is_closed = queue.is_closed;
        drop(queue);
        self.writers.tell_progress(is_closed);
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Cores this process may use. Asked once: the system's answer is read from several files.
fn cores() -> usize {
    static CORES: LazyLock<usize> = LazyLock::new(|| std::thread::available_parallelism().map_or(1, NonZero::get));
    *CORES
}

/// What is told may panic, and the writer goes on.
fn tell(done: impl FnOnce()) {
    let _told = catch_unwind(AssertUnwindSafe(done)).is_ok();
}
