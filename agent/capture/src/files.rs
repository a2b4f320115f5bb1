//! Tensor files: written by a few threads, from copies, in bounded memory; and by the thread that captures, from the tensors
//! themselves, while those are behind.

use std::io;
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use trainmon_core::{Dtype, Shape, TensorStats};
use trainmon_dump::capture::Hole;
use trainmon_dump::tensor_file::Buffer;
use trainmon_dump::tensor_file::write::WriteError;

use crate::copies::{FurtherName, TensorCopy, address_of};
use crate::file_queue::{Job, Queue};
use crate::file_writer::{Bytes, Content, FileWriter, Writing, WrittenFile};
use crate::spare::SpareMemory;
use crate::speed::DiskSpeed;

/// Threads that write. They wait for the disk, not for a core.
const WRITERS: usize = 2;
/// Smaller tensors are copied in less time than their file is opened in.
const SMALLEST_IN_PLACE: usize = 256 << 10;

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

/// The elements of a tensor that becomes a file.
pub(crate) trait Elements {
    /// Their bytes, if they lie in logical order.
    fn in_place(&self) -> Option<&[u8]>;
    /// The CRC-32 of these bytes.
    fn sum(&mut self) -> u32;
    /// Copies the bytes to a place of exactly their size, and gives their CRC-32.
    fn copy(&mut self, target: &mut [u8]) -> u32;
    /// What was measured while they were summed or copied, if that is wanted of them.
    fn measured(&self) -> Option<TensorStats> {
        None
    }
    /// They are the same as others, of which this was measured.
    fn are_same_as(&mut self, _measured: &TensorStats) {}
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
    /// There may be something to do for a writer.
    work: Condvar,
    /// Something was written, or given up.
    progress: Condvar,
    spare: SpareMemory,
    speed: DiskSpeed,
    done: Done,
}

impl Files {
    /// Files in `directory`, which no thread writes yet. No link is followed.
    pub(crate) fn new(
        directory: OwnedFd,
        writing: Writing,
        bound: usize,
        spare: SpareMemory,
        speed: DiskSpeed,
        done: Done,
    ) -> Self {
        let shared = Shared {
            bound,
            writer: FileWriter::new(directory, writing),
            queue: Mutex::default(),
            work: Condvar::new(),
            progress: Condvar::new(),
            spare,
            speed,
            done,
        };
        Self { shared: Arc::new(shared), threads: Mutex::default() }
    }

    /// Starts the threads.
    pub(crate) fn start(self) -> io::Result<Self> {
        for _ in 0..WRITERS {
            let shared = Arc::clone(&self.shared);
            match std::thread::Builder::new().name("trainmon-capture".to_owned()).spawn(move || shared.run()) {
                Ok(thread) => self.threads.lock().push(thread),
                Err(refused) => {
                    self.close();
                    return Err(refused);
                }
            }
        }
        Ok(self)
    }

    /// Takes a copy of a tensor, and waits while more than the bound would be waiting. One tensor larger than the bound is
    /// taken when it is alone. Where the writers are behind and the disk is not, the file is written at once, of the tensor.
    /// `false`: there is no memory for the copy (a tensor may be far larger than what it is a view of).
    pub(crate) fn put(&self, file: &TensorFile<'_>, name: String, size: usize, elements: &mut impl Elements) -> bool {
        if self.shared.writer.shares(size) && self.name_copy(file, &name, elements) {
            return true;
        }
        if size >= SMALLEST_IN_PLACE && self.shared.is_behind() && self.write_in_place(file, &name, elements) {
            return true;
        }
        if size > self.shared.bound && !fits_memory(size) {
            return false;
        }
        let reserved = Reserved::wait(&self.shared, size);
        let Ok(mut bytes) = self.memory(size) else { return false };
        let crc = trainmon_stats::with_at_most(self.shared.free_cores(), || elements.copy(&mut bytes));
        let address = elements.in_place().map(address_of);
        let copy = TensorCopy::new(file.content(crc), bytes, address, elements.measured());
        reserved.become_job(Job { hole: file.hole, name, copy: Arc::new(copy) });
        true
    }

    /// Has the file that is to be made of a copy of the same tensor get this name, too. `false`: there is none.
    fn name_copy(&self, file: &TensorFile<'_>, name: &str, elements: &mut impl Elements) -> bool {
        let Some(bytes) = elements.in_place() else { return false };
        let found = self.shared.queue.lock().copies.of(bytes);
        let Some(copy) = found else { return false };
        let is_named = copy.is_same(file.dtype, file.shape, bytes) && copy.add_name(file.hole, name);
        if let (true, Some(measured)) = (is_named, &copy.measured) {
            elements.are_same_as(measured);
        }
        self.shared.let_go(copy);
        is_named
    }

    /// Writes a file of the tensor itself. `false`, and it has to be copied: its bytes are in another order, one that may be the
    /// same is being written, or somebody changes it meanwhile.
    fn write_in_place(&self, file: &TensorFile<'_>, name: &str, elements: &mut impl Elements) -> bool {
        // Who waits for the files waits for this one.
        let _reserved = Reserved::without_memory(&self.shared);
        if elements.in_place().is_none() {
            return false;
        }
        let content = file.content(trainmon_stats::with_at_most(self.shared.free_cores(), || elements.sum()));
        let Some(bytes) = elements.in_place() else { return false };
        let Some(temporary) = self.shared.queue.lock().begin(content) else { return false };
        let is_written = self.shared.write(file.hole, name, content, &Bytes::Lent(bytes), &temporary);
        self.shared.end(content, 0);
        is_written
    }

    fn memory(&self, size: usize) -> io::Result<Buffer> {
        self.shared.spare.kept(size).map_or_else(|| Buffer::zeros(size), Ok)
    }

    /// Waits until every file is written, and writes some of them meanwhile.
    pub(crate) fn drain(&self) {
        let mut queue = self.shared.queue.lock();
        while !queue.is_idle() {
            if let Some((job, temporary)) = queue.next() {
                MutexGuard::unlocked(&mut queue, || self.shared.work(job, &temporary));
            } else {
                self.shared.progress.wait(&mut queue);
            }
        }
    }

    /// As [`drain`](Self::drain), for so long at most. Whether every file is written.
    pub(crate) fn drain_for(&self, at_most: Duration) -> bool {
        let deadline = Instant::now() + at_most;
        let mut queue = self.shared.queue.lock();
        while !queue.is_idle() {
            if self.shared.progress.wait_until(&mut queue, deadline).timed_out() {
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

    /// Ends the threads, once everything is written; writes some of it meanwhile.
    pub(crate) fn close(&self) {
        self.shared.queue.lock().is_closed = true;
        self.shared.work.notify_all();
        while self.shared.work_once() {}
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
            shared.progress.wait(&mut queue);
        }
        queue.bytes += size;
        queue.reserved += 1;
        Self { shared, size }
    }

    /// A place among those who write, for one that copies nothing.
    fn without_memory(shared: &'s Shared) -> Self {
        shared.queue.lock().reserved += 1;
        Self { shared, size: 0 }
    }

    fn become_job(mut self, job: Job) {
        let mut queue = self.shared.queue.lock();
        queue.copies.insert(&job.copy);
        queue.jobs.push_back(job);
        // The bytes are the job's now.
        queue.bytes += self.size;
        drop(queue);
        self.shared.work.notify_one();
        self.give_back();
        std::mem::forget(self);
    }

    fn give_back(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.bytes -= self.size;
        queue.reserved -= 1;
        let is_closed = queue.is_closed;
        drop(queue);
        self.shared.tell_progress(is_closed);
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

/// Whether a copy larger than the bound may be tried: beside it the training goes on. Where the system does not tell, it is.
fn fits_memory(size: usize) -> bool {
    let told = std::fs::read_to_string("/proc/meminfo").ok();
    let available = told.as_deref().and_then(|text| text.lines().find_map(|line| line.strip_prefix("MemAvailable:")));
    let kib = available.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.is_none_or(|kib| size as u64 / 1024 < kib / 2)
}

impl TensorFile<'_> {
    fn content(&self, crc: u32) -> Content {
        Content { crc, dtype: self.dtype, shape: self.shape }
    }
}

/// What is told may panic, and the writer goes on.
fn tell(done: impl FnOnce()) {
    let _told = catch_unwind(AssertUnwindSafe(done)).is_ok();
}

impl Shared {
    /// Whether a copy would wait for the writers and not for the disk.
    fn is_behind(&self) -> bool {
        if !self.speed.is_fast() || self.writer.compresses() {
            return false;
        }
        // What waits for one that may be the same does not wait for a thread.
        let queue = self.queue.lock();
        queue.running.len() >= WRITERS && !queue.jobs.is_empty()
    }

    /// Cores that no writer keeps busy, the caller's among them.
    fn free_cores(&self) -> usize {
        let queue = self.queue.lock();
        cores().saturating_sub((queue.running.len() + queue.jobs.len()).min(WRITERS))
    }

    fn run(&self) {
        while let Some((job, temporary)) = self.next() {
            self.work(job, &temporary);
        }
    }

    /// Writes a file that waits. `false`: there is none that could be written now.
    fn work_once(&self) -> bool {
        let next = self.queue.lock().next();
        next.map(|(job, temporary)| self.work(job, &temporary)).is_some()
    }

    fn work(&self, job: Job, temporary: &str) {
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
    fn let_go(&self, copy: Arc<TensorCopy>) {
        if let Some(copy) = Arc::into_inner(copy) {
            // Half of the bound, so that what waits and what is kept stay near it.
            self.spare.give(copy.bytes, self.bound / 2);
        }
    }

    /// Writes a file and tells of it, also where that panics. `false`, and nothing is told: the bytes changed meanwhile.
    fn write(&self, hole: Hole, name: &str, content: Content, bytes: &Bytes<'_>, temporary: &str) -> bool {
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
    fn end(&self, content: Content, size: usize) {
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;
    use std::path::Path;

    use trainmon_core::config::TensorFormat;
    use trainmon_core::{Statistic, StatisticSet, TensorView};

    use super::*;

    const FLOATS: usize = SMALLEST_IN_PLACE / 4;

    /// Elements that count how often they are copied.
    struct Given {
        bytes: Vec<u8>,
        lie_in_order: bool,
        copies: usize,
        stats: Option<TensorStats>,
    }

    impl Given {
        fn of(value: u8) -> Self {
            Self { bytes: vec![value; SMALLEST_IN_PLACE], lie_in_order: true, copies: 0, stats: None }
        }
    }

    impl Elements for Given {
        fn in_place(&self) -> Option<&[u8]> {
            self.lie_in_order.then_some(&self.bytes)
        }

        fn sum(&mut self) -> u32 {
            crc32fast::hash(&self.bytes)
        }

        fn copy(&mut self, target: &mut [u8]) -> u32 {
            self.copies += 1;
            target.copy_from_slice(&self.bytes);
            let view = TensorView::from_bytes(Dtype::F32, &[FLOATS as i64], target).unwrap();
            let statistics =
                [Statistic::Max, Statistic::Crc32].into_iter().fold(StatisticSet::EMPTY, StatisticSet::with);
            let stats = trainmon_stats::measure(&view, trainmon_stats::Request { statistics, eps: 0.0 });
            self.stats.insert(stats).crc32
        }

        fn measured(&self) -> Option<TensorStats> {
            self.stats
        }

        fn are_same_as(&mut self, measured: &TensorStats) {
            self.stats = Some(*measured);
        }
    }

    /// Files that no thread writes.
    fn without_threads(directory: &Path, told: &Arc<Mutex<Vec<(Hole, String)>>>) -> Files {
        let told = Arc::clone(told);
        let done = move |hole, written: Result<(&str, WrittenFile), WriteError>| {
            told.lock().push((hole, written.unwrap().0.to_owned()));
        };
        let writing = Writing { format: TensorFormat::Npy, compress: false, shares: true };
        let opened = OwnedFd::from(std::fs::File::open(directory).unwrap());
        Files::new(opened, writing, 1 << 30, SpareMemory::default(), DiskSpeed::default(), Box::new(done))
    }

    /// Files whose writers are busy for ever, with one that waits and a disk that was fast.
    fn behind(directory: &Path, told: &Arc<Mutex<Vec<(Hole, String)>>>) -> Files {
        let files = without_threads(directory, told);
        for number in 0..=WRITERS {
            put(&files, number as u32, &mut Given::of(number as u8));
        }
        for _ in 0..WRITERS {
            let _taken = files.shared.queue.lock().next();
        }
        files.shared.speed.written(1, Duration::ZERO);
        files
    }

    fn put(files: &Files, number: u32, elements: &mut impl Elements) {
        let shape = Shape::new(&[FLOATS as i64]).unwrap();
        let file = TensorFile { hole: Hole(number), path: "", dtype: Dtype::F32, shape };
        assert!(files.put(&file, format!("{number}.npy"), SMALLEST_IN_PLACE, elements));
    }

    #[test]
    fn a_tensor_is_written_in_place_while_the_writers_are_behind() {
        let directory = tempfile::tempdir().unwrap();
        let told = Arc::default();
        let files = behind(directory.path(), &told);
        let (before, mut tensor) = (files.waiting(), Given::of(9));
        put(&files, 9, &mut tensor);
        assert_eq!((tensor.copies, files.waiting()), (0, before), "those before it still wait");
        assert_eq!(*told.lock(), [(Hole(9), "9.npy".to_owned())]);
        let written = trainmon_dump::tensor_file::read_one(&directory.path().join("9.npy")).unwrap();
        assert_eq!(written.bytes(), tensor.bytes);
    }

    #[test]
    fn what_cannot_be_written_in_place_is_copied() {
        let directory = tempfile::tempdir().unwrap();
        let told = Arc::default();
        let files = behind(directory.path(), &told);
        let mut strided = Given { lie_in_order: false, ..Given::of(9) };
        put(&files, 9, &mut strided);
        // A writer has the same one in hand: this one is to become a further name of its file.
        let mut twin = Given::of(0);
        put(&files, 10, &mut twin);
        (0..10).for_each(|_| files.shared.speed.written(1, Duration::MAX));
        let mut on_a_slow_disk = Given::of(11);
        put(&files, 11, &mut on_a_slow_disk);
        assert_eq!([strided.copies, twin.copies, on_a_slow_disk.copies], [1, 1, 1]);
        assert!(told.lock().is_empty(), "nothing is written");
    }

    #[test]
    fn a_tensor_that_somebody_changes_meanwhile_is_copied() {
        /// Another thread writes to it after it was summed.
        struct Changing(Given);
        impl Elements for Changing {
            fn in_place(&self) -> Option<&[u8]> {
                self.0.in_place()
            }
            fn sum(&mut self) -> u32 {
                let sum = self.0.sum();
                self.0.bytes[0] += 1;
                sum
            }
            fn copy(&mut self, target: &mut [u8]) -> u32 {
                self.0.copy(target)
            }
        }
        let directory = tempfile::tempdir().unwrap();
        let told = Arc::default();
        let files = behind(directory.path(), &told);
        let mut changing = Changing(Given::of(9));
        put(&files, 9, &mut changing);
        assert_eq!(changing.0.copies, 1);
        assert!(
            told.lock().is_empty() && std::fs::read_dir(directory.path()).unwrap().next().is_none(),
            "no file is left"
        );
    }

    #[test]
    fn who_waits_for_the_files_waits_for_one_that_is_written_in_place() {
        /// Looks who would wait while it is summed.
        struct Watched<'f>(Given, &'f Files, bool);
        impl Elements for Watched<'_> {
            fn in_place(&self) -> Option<&[u8]> {
                self.0.in_place()
            }
            fn sum(&mut self) -> u32 {
                let mut queue = self.1.shared.queue.lock();
                let (jobs, running) = (std::mem::take(&mut queue.jobs), std::mem::take(&mut queue.running));
                self.2 = queue.is_idle();
                (queue.jobs, queue.running) = (jobs, running);
                self.0.sum()
            }
            fn copy(&mut self, _target: &mut [u8]) -> u32 {
                unreachable!("it is written in place")
            }
        }
        let directory = tempfile::tempdir().unwrap();
        let files = behind(directory.path(), &Arc::default());
        let mut watched = Watched(Given::of(9), &files, true);
        put(&files, 9, &mut watched);
        assert!(!watched.2, "the last file would be missing");
        assert_eq!(files.shared.queue.lock().reserved, 0);
    }

    #[test]
    fn who_waits_for_the_files_writes_them() {
        let directory = tempfile::tempdir().unwrap();
        let told = Arc::default();
        let files = without_threads(directory.path(), &told);
        for number in 0..3 {
            put(&files, number, &mut Given::of(number as u8));
        }
        assert_eq!(files.waiting(), (3, 3 * SMALLEST_IN_PLACE));
        files.drain();
        assert_eq!((files.waiting(), told.lock().len()), ((0, 0), 3));
        assert!(files.drain_for(Duration::ZERO));
    }

    #[test]
    fn a_tensor_whose_copy_waits_is_a_further_name_of_its_file_unless_it_changed() {
        let directory = tempfile::tempdir().unwrap();
        let told = Arc::default();
        let files = without_threads(directory.path(), &told);
        let mut tensor = Given::of(7);
        put(&files, 0, &mut tensor);
        let measured = tensor.stats.take();
        put(&files, 1, &mut tensor);
        assert_eq!((tensor.copies, files.waiting()), (1, (1, SMALLEST_IN_PLACE)));
        let max_of = |stats: Option<TensorStats>| stats.map(|stats| stats.max);
        assert_eq!(max_of(tensor.stats), max_of(measured), "what was measured of the copy is told of it");
        assert!(measured.is_some());
        tensor.bytes[SMALLEST_IN_PLACE - 1] = 8;
        put(&files, 2, &mut tensor);
        assert_eq!(tensor.copies, 2);
        put(&files, 3, &mut tensor);
        assert_eq!((tensor.copies, files.waiting().0), (2, 2), "the last copy is held against");
        files.drain();
        let names: Vec<String> = told.lock().iter().map(|(_, name)| name.clone()).collect();
        assert_eq!(names, ["0.npy", "1.npy", "2.npy", "3.npy"]);
        let inode = |name: &str| std::fs::metadata(directory.path().join(name)).unwrap().ino();
        assert_eq!((inode("0.npy"), inode("2.npy")), (inode("1.npy"), inode("3.npy")));
        assert_ne!(inode("0.npy"), inode("2.npy"));
        put(&files, 4, &mut tensor);
        assert_eq!(tensor.copies, 3, "no copy waits any more");
    }

    #[test]
    fn where_a_file_gets_no_further_name_another_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let told = Arc::default();
        let files = without_threads(directory.path(), &told);
        let mut tensor = Given::of(7);
        put(&files, 0, &mut tensor);
        put(&files, 1, &mut tensor);
        // Its name is taken, by what no link replaces.
        std::fs::write(directory.path().join("1.npy"), "").unwrap();
        files.drain();
        assert_eq!(told.lock().len(), 2);
        let written = trainmon_dump::tensor_file::read_one(&directory.path().join("1.npy")).unwrap();
        assert_eq!(written.bytes(), tensor.bytes);
    }

    #[test]
    fn a_directory_that_refuses_is_told_once() {
        let directory = tempfile::tempdir().unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let (refused, place) = (Arc::clone(&told), directory.path().to_owned());
        let mut files = behind(directory.path(), &Arc::default());
        let done = move |hole, written: Result<(&str, WrittenFile), WriteError>| {
            refused.lock().push((hole, written.is_err()));
        };
        Arc::get_mut(&mut files.shared).unwrap().done = Box::new(done);
        std::fs::remove_dir(place).unwrap();
        put(&files, 9, &mut Given::of(9));
        assert_eq!((&*told.lock(), files.shared.queue.lock().running.len()), (&vec![(Hole(9), true)], WRITERS));
    }

    #[test]
    fn a_free_writer_is_given_the_tensor() {
        let directory = tempfile::tempdir().unwrap();
        let told = Arc::default();
        let files = behind(directory.path(), &told);
        // One waits for its twin, and a writer has nothing to do.
        files.shared.queue.lock().running.truncate(1);
        let mut tensor = Given::of(9);
        put(&files, 9, &mut tensor);
        assert_eq!(tensor.copies, 1);
    }
}
