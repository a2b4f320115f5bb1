//! The threads that write tensor files, and the state that they share with the capturing threads.

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

/// The number of writer threads, which are limited by the disk, not by the CPU.
pub(crate) const WRITERS: usize = 2;
/// The size in bytes from which tensors are written in place. Copying a smaller one is faster than opening its file.
pub(crate) const SMALLEST_IN_PLACE: usize = 256 << 10;

/// Called for each file with its hole, and with its name and size or the error.
pub(crate) type Done = Box<dyn Fn(Hole, Result<(&str, WrittenFile), WriteError>) + Send + Sync>;

/// The queue of files and the means to write them, shared by the writers and the capturing threads.
pub(crate) struct Writers {
    /// The maximum number of queued bytes.
    pub(crate) bound: usize,
    pub(crate) writer: FileWriter,
    pub(crate) queue: Mutex<Queue>,
    /// Signals that there may be work for a writer.
    pub(crate) work: Condvar,
    /// Signals that a file was written, or a reservation given up.
    pub(crate) progress: Condvar,
    pub(crate) spare: SpareMemory,
    pub(crate) speed: DiskSpeed,
    pub(crate) done: Done,
}

impl Writers {
    /// Whether a copy would have to wait for the writers, although the disk is fast.
    pub(crate) fn is_behind(&self) -> bool {
        if !self.speed.is_fast() || self.writer.compresses() {
            return false;
        }
        // A job that waits for a file of equal content does not wait for a thread.
        let queue = self.queue.lock();
        queue.running.len() >= WRITERS && !queue.jobs.is_empty()
    }

    /// The number of cores that no writer uses, including the caller's.
    pub(crate) fn free_cores(&self) -> usize {
        let queue = self.queue.lock();
        cores().saturating_sub((queue.running.len() + queue.jobs.len()).min(WRITERS))
    }

    pub(crate) fn run(&self) {
        while let Some((job, temporary)) = self.next() {
            self.work(job, &temporary);
        }
    }

    /// Writes a queued file. Returns `false` if none can be written now.
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

    /// Adds a further name to a copy's file; if that fails, writes a separate file.
    fn write_again(&self, further: &FurtherName, file: &str, copy: &TensorCopy, temporary: &str) {
        let FurtherName { hole, name } = further;
        if self.writer.add_name(file, name).is_some() {
            let shared = copy.bytes.len() as u64;
            tell(|| (self.done)(*hole, Ok((name, WrittenFile { size: 0, shared }))));
        } else {
            self.write(*hole, name, copy.content, &Bytes::Copied(&copy.bytes), temporary);
        }
    }

    /// Keeps the memory of a copy for reuse if there is no other reference to the copy.
    pub(crate) fn let_go(&self, copy: Arc<TensorCopy>) {
        if let Some(copy) = Arc::into_inner(copy) {
            // Half of the bound limits queued and spare memory together to about the bound.
            self.spare.give(copy.bytes, self.bound / 2);
        }
    }

    /// Writes a file and reports it, even after a panic. Returns `false` without a report if the bytes changed meanwhile.
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
            let panicked = WriteError::Write(io::Error::other("the writer panicked"));
            tell(|| (self.done)(hole, Err(panicked)));
            true
        })
    }

    /// Removes a written file, of which `size` bytes were queued, from the queue.
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
            // A job of equal content may have waited for this one.
            self.work.notify_one();
        }
    }

    /// Wakes the threads that wait for files, and the writers if they may end.
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

/// Reserved memory for a copy. It is released on drop, for example after a panic, unless it became a job.
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

    /// A reservation for a write without a copy.
    pub(crate) fn without_memory(writers: &'s Writers) -> Self {
        writers.queue.lock().reserved += 1;
        Self { writers, size: 0 }
    }

    pub(crate) fn become_job(mut self, job: Job) {
        let mut queue = self.writers.queue.lock();
        queue.copies.insert(&job.copy);
        queue.jobs.push_back(job);
        // `give_back` subtracts the bytes of the reservation; the job keeps its own.
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

/// The number of cores that this process may use. Cached, because the system reads it from several files.
fn cores() -> usize {
    static CORES: LazyLock<usize> = LazyLock::new(|| std::thread::available_parallelism().map_or(1, NonZero::get));
    *CORES
}

/// Calls `done` and ignores a panic in it, so that the writer continues.
fn tell(done: impl FnOnce()) {
    let _told = catch_unwind(AssertUnwindSafe(done)).is_ok();
}
