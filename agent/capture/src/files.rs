//! Tensor files: written by a few threads, from copies, in bounded memory.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};
use trainmon_core::config::TensorFormat;
use trainmon_core::{Dtype, Shape};
use trainmon_dump::capture::Hole;
use trainmon_dump::tensor_file::write::{WriteError, write_npy, write_pt_of_crc, write_safetensors};
use trainmon_dump::tensor_file::{Buffer, FileBytes, StoredTensor};

use crate::spare::SpareMemory;

/// Threads that write. They wait for the disk, not for a core.
const WRITERS: usize = 2;
/// Files: for the owner, and to be read by the group.
const FILE_MODE: u32 = 0o640;
/// zstd's level: the fastest that is not a compromise of its own.
const ZSTD_LEVEL: i32 = 3;

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
    dtype: Dtype,
    shape: Shape,
    bytes: Buffer,
    /// Of the bytes, if whoever copied them took it.
    crc: Option<u32>,
}

/// How files are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writing {
    pub(crate) format: TensorFormat,
    pub(crate) compress: bool,
    /// Bytes that may wait.
    pub(crate) bound: usize,
}

/// Told of each file: its hole, and its name and size or why there is none.
pub(crate) type Done = Box<dyn Fn(Hole, Result<(&str, u64), WriteError>) + Send + Sync>;

/// The threads and what waits for them.
pub(crate) struct Files {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    writing: Writing,
    directory: OwnedFd,
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
    /// Jobs being written.
    running: usize,
    /// Jobs whose bytes are being copied.
    reserved: usize,
    is_closed: bool,
    /// Temporary names given.
    names: u64,
}

impl Queue {
    /// Whether every file is written.
    fn is_idle(&self) -> bool {
        self.jobs.is_empty() && self.running == 0 && self.reserved == 0
    }
}

impl Files {
    /// Starts the threads. They write into `directory` and follow no link.
    pub(crate) fn start(directory: OwnedFd, writing: Writing, spare: SpareMemory, done: Done) -> io::Result<Self> {
        let (queue, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { writing, directory, queue, changed, spare, done });
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
    /// taken when it is alone. `copy` gives the CRC-32 of what it copied, if it knows it. `false`: there is no memory for the
    /// copy (a tensor may be far larger than what it is a view of).
    pub(crate) fn put(
        &self,
        file: &TensorFile<'_>,
        name: String,
        size: usize,
        copy: impl FnOnce(&mut [u8]) -> Option<u32>,
    ) -> bool {
        if size > self.shared.writing.bound && !fits_memory(size) {
            return false;
        }
        let reserved = Reserved::wait(&self.shared, size);
        let Ok(mut bytes) = self.shared.spare.take(size) else { return false };
        let crc = copy(&mut bytes);
        reserved.become_job(Job { hole: file.hole, name, dtype: file.dtype, shape: file.shape, bytes, crc });
        true
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
        (queue.jobs.len() + queue.running, queue.bytes)
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
        while queue.bytes > 0 && queue.bytes.saturating_add(size) > shared.writing.bound {
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
            let size = job.bytes.len();
            let hole = job.hole;
            let written = catch_unwind(AssertUnwindSafe(|| {
                let (name, written) = self.write(job, &temporary);
                (self.done)(hole, written.map(|bytes| (&*name, bytes)));
            }));
            if written.is_err() {
                let panicked = WriteError::Write(io::Error::other("its writer panicked"));
                let _told = catch_unwind(AssertUnwindSafe(|| (self.done)(hole, Err(panicked)))).is_ok();
            }
            let mut queue = self.queue.lock();
            queue.running -= 1;
            queue.bytes -= size;
            drop(queue);
            self.changed.notify_all();
        }
    }

    fn next(&self) -> Option<(Job, String)> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                queue.running += 1;
                queue.names += 1;
                let temporary = format!(".{}.tmp", queue.names);
                return Some((job, temporary));
            }
            if queue.is_closed && queue.reserved == 0 {
                return None;
            }
            self.changed.wait(&mut queue);
        }
    }

    /// Writes a file that appears whole.
    fn write(&self, job: Job, temporary: &str) -> (String, Result<u64, WriteError>) {
        let Job { name, dtype, shape, bytes, crc, hole: _ } = job;
        let bytes = FileBytes::from(bytes);
        let written = self.write_beside(temporary, (dtype, shape), &bytes, crc).and_then(|size| {
            renameat(&self.directory, temporary, &self.directory, &*name).map_err(io::Error::from)?;
            Ok(size)
        });
        // Nobody else has them. Half of the bound, so that what waits and what is kept stay near it.
        if let Some(bytes) = bytes.into_buffer() {
            self.spare.give(bytes, self.writing.bound / 2);
        }
        if written.is_err() {
            let _gone = unlinkat(&self.directory, temporary, AtFlags::empty()).is_ok();
        }
        (name, written)
    }

    fn write_beside(
        &self,
        temporary: &str,
        (dtype, shape): (Dtype, Shape),
        bytes: &FileBytes,
        crc: Option<u32>,
    ) -> Result<u64, WriteError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            openat(&self.directory, temporary, flags, Mode::from_raw_mode(FILE_MODE)).map_err(io::Error::from)?;
        let mut out = Counted { out: File::from(file), count: 0 };
        let tensor = StoredTensor::new(dtype, shape, bytes.clone())
            .map_err(|error| WriteError::Write(io::Error::other(error.to_string())))?;
        if self.writing.compress {
            let mut encoder = zstd::Encoder::new(&mut out, ZSTD_LEVEL)?;
            self.encode(tensor, crc, &mut encoder)?;
            encoder.finish()?;
        } else {
            let mut buffered = BufWriter::new(&mut out);
            let encoded = self.encode(tensor, crc, &mut buffered).and_then(|()| Ok(buffered.flush()?));
            let (_out, _rest) = buffered.into_parts();
            encoded?;
        }
        Ok(out.count)
    }

    fn encode(&self, tensor: StoredTensor, crc: Option<u32>, out: &mut impl Write) -> Result<(), WriteError> {
        match self.writing.format {
            TensorFormat::Pt => write_pt_of_crc(&tensor, crc, out),
            TensorFormat::Npy => write_npy(&tensor, out),
            TensorFormat::Safetensors => write_safetensors(&[("tensor".to_owned(), tensor)], out),
        }
    }
}

/// Counts the bytes that pass.
struct Counted<W> {
    out: W,
    count: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.count += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
