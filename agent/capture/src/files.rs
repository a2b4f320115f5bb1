//! Tensor files. A few threads write them from copies, in bounded memory. While those threads are behind, the capturing thread
//! writes them from the tensors themselves.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use trainmon_capture_files::Hole;
use trainmon_core::{Dtype, Shape, TensorStats};
use trainmon_tensor_files::Buffer;

use crate::copies::{TensorCopy, address_of};
use crate::file_queue::Job;
use crate::file_writer::{Bytes, Content, FileWriter, Writing};
use crate::spare::SpareMemory;
use crate::speed::DiskSpeed;
use crate::writers::{Done, Reserved, SMALLEST_IN_PLACE, WRITERS, Writers};

/// A tensor to be written to a file.
#[derive(Clone, Debug)]
pub(crate) struct TensorFile<'p> {
    /// The place for the file's name, filled in once the file is complete.
    pub(crate) hole: Hole,
    /// The value's path, from which the name is made.
    pub(crate) path: &'p str,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Shape,
}

/// The elements of a tensor to be written to a file.
pub(crate) trait Elements {
    /// Returns the bytes if they are in logical order.
    fn in_place(&self) -> Option<&[u8]>;
    /// Returns the CRC-32 of these bytes.
    fn sum(&mut self) -> u32;
    /// Copies the bytes into `target`, which has exactly their size, and returns their CRC-32.
    fn copy(&mut self, target: &mut [u8]) -> u32;
    /// The statistics that [`sum`](Self::sum) or [`copy`](Self::copy) measured, if requested.
    fn measured(&self) -> Option<TensorStats> {
        None
    }
    /// Takes over the statistics of an equal tensor.
    fn are_same_as(&mut self, _measured: &TensorStats) {}
}

/// The writer threads and their queue.
pub(crate) struct Files {
    writers: Arc<Writers>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Files {
    /// Prepares writing files into `directory`, without threads so far. Links are not followed.
    pub(crate) fn new(
        directory: OwnedFd,
        writing: Writing,
        bound: usize,
        spare: SpareMemory,
        speed: DiskSpeed,
        done: Done,
    ) -> Self {
        let writers = Writers {
            bound,
            writer: FileWriter::new(directory, writing),
            queue: Mutex::default(),
            work: Condvar::new(),
            progress: Condvar::new(),
            spare,
            speed,
            done,
        };
        Self { writers: Arc::new(writers), threads: Mutex::default() }
    }

    /// Starts the threads.
    pub(crate) fn start(self) -> io::Result<Self> {
        for _ in 0..WRITERS {
            let writers = Arc::clone(&self.writers);
            match std::thread::Builder::new().name("trainmon-capture".to_owned()).spawn(move || writers.run()) {
                Ok(thread) => self.threads.lock().push(thread),
                Err(refused) => {
                    self.close();
                    return Err(refused);
                }
            }
        }
        Ok(self)
    }

    /// Queues a copy of a tensor, and blocks while the queue would exceed the bound. A tensor larger than the bound is accepted
    /// when the queue is empty. If the writers are behind and the disk is fast, writes the file at once, from the tensor itself.
    /// Durable files are complete when this returns. Returns `false` if there is no memory for the copy, because a tensor may
    /// be far larger than the memory it is a view of.
    pub(crate) fn put(&self, file: &TensorFile<'_>, name: String, size: usize, elements: &mut impl Elements) -> bool {
        let is_durable = self.writers.writer.is_durable();
        if is_durable && self.write_in_place(file, &name, elements) {
            return true;
        }
        let is_taken = self.take(file, name, size, elements);
        if is_durable {
            self.drain();
        }
        is_taken
    }

    fn take(&self, file: &TensorFile<'_>, name: String, size: usize, elements: &mut impl Elements) -> bool {
        if self.writers.writer.shares(size) && self.name_copy(file, &name, elements) {
            return true;
        }
        if size >= SMALLEST_IN_PLACE && self.writers.is_behind() && self.write_in_place(file, &name, elements) {
            return true;
        }
        if size > self.writers.bound && !fits_memory(size) {
            return false;
        }
        let reserved = Reserved::wait(&self.writers, size);
        let Ok(mut bytes) = self.memory(size) else { return false };
        let crc = trainmon_stats::with_at_most(self.writers.free_cores(), || elements.copy(&mut bytes));
        let address = elements.in_place().map(address_of);
        let copy = TensorCopy::new(file.content(crc), bytes, address, elements.measured());
        reserved.become_job(Job { hole: file.hole, name, copy: Arc::new(copy) });
        true
    }

    /// Adds a name to the file of a queued copy of an equal tensor. Returns `false` if there is none.
    fn name_copy(&self, file: &TensorFile<'_>, name: &str, elements: &mut impl Elements) -> bool {
        let Some(bytes) = elements.in_place() else { return false };
        let found = self.writers.queue.lock().copies.of(bytes);
        let Some(copy) = found else { return false };
        let is_named = copy.is_same(file.dtype, file.shape, bytes) && copy.add_name(file.hole, name);
        if let (true, Some(measured)) = (is_named, &copy.measured) {
            elements.are_same_as(measured);
        }
        self.writers.let_go(copy);
        is_named
    }

    /// Writes a file from the tensor itself. Returns `false` if it has to be copied: its bytes are in another order, a file of
    /// equal [`Content`] is being written, or the tensor is changed meanwhile.
    fn write_in_place(&self, file: &TensorFile<'_>, name: &str, elements: &mut impl Elements) -> bool {
        // `drain` and `close` must wait for this file too.
        let _reserved = Reserved::without_memory(&self.writers);
        if elements.in_place().is_none() {
            return false;
        }
        let content = file.content(trainmon_stats::with_at_most(self.writers.free_cores(), || elements.sum()));
        let Some(bytes) = elements.in_place() else { return false };
        let Some(temporary) = self.writers.queue.lock().begin(content) else { return false };
        let is_written = self.writers.write(file.hole, name, content, &Bytes::Lent(bytes), &temporary);
        self.writers.end(content, 0);
        is_written
    }

    fn memory(&self, size: usize) -> io::Result<Buffer> {
        self.writers.spare.kept(size).map_or_else(|| Buffer::zeros(size), Ok)
    }

    /// Waits until every file is written, and helps to write them.
    pub(crate) fn drain(&self) {
        let mut queue = self.writers.queue.lock();
        while !queue.is_idle() {
            if let Some((job, temporary)) = queue.next() {
                MutexGuard::unlocked(&mut queue, || self.writers.work(job, &temporary));
            } else {
                self.writers.progress.wait(&mut queue);
            }
        }
    }

    /// Waits up to `at_most`, without writing, and returns whether every file is written.
    pub(crate) fn drain_for(&self, at_most: Duration) -> bool {
        let deadline = Instant::now() + at_most;
        let mut queue = self.writers.queue.lock();
        while !queue.is_idle() {
            if self.writers.progress.wait_until(&mut queue, deadline).timed_out() {
                return queue.is_idle();
            }
        }
        true
    }

    /// The number of files, and of their bytes, that are queued or being written.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        let queue = self.writers.queue.lock();
        (queue.jobs.len() + queue.running.len(), queue.bytes)
    }

    /// Ends the threads once everything is written, and helps to write.
    pub(crate) fn close(&self) {
        self.writers.queue.lock().is_closed = true;
        self.writers.work.notify_all();
        while self.writers.work_once() {}
        for thread in self.threads.lock().drain(..) {
            // A writer that panicked has already reported the files that it failed to write.
            let _ended = thread.join().is_ok();
        }
    }
}

/// Whether a copy larger than the bound takes less than half of the available memory, which the training also needs. True
/// if the available memory is unknown.
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;
    use std::path::Path;

    use trainmon_core::config::TensorFormat;
    use trainmon_core::{Statistic, StatisticSet, TensorView};
    use trainmon_tensor_files::write::WriteError;

    use super::*;
    use crate::file_writer::WrittenFile;

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
        let writing = Writing { format: TensorFormat::Npy, compress: false, shares: true, durable: false };
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
            let _taken = files.writers.queue.lock().next();
        }
        files.writers.speed.written(1, Duration::ZERO);
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
        let written = trainmon_tensor_files::read_one(&directory.path().join("9.npy")).unwrap();
        assert_eq!(written.bytes(), tensor.bytes);
    }

    #[test]
    fn durable_files_are_whole_when_the_tensor_is_taken() {
        let directory = tempfile::tempdir().unwrap();
        let told = Arc::default();
        let mut files = without_threads(directory.path(), &told);
        let opened = OwnedFd::from(std::fs::File::open(directory.path()).unwrap());
        let writing = Writing { format: TensorFormat::Npy, compress: false, shares: true, durable: true };
        Arc::get_mut(&mut files.writers).unwrap().writer = FileWriter::new(opened, writing);
        let mut strided = Given { lie_in_order: false, ..Given::of(9) };
        put(&files, 0, &mut strided);
        assert_eq!((strided.copies, told.lock().len(), files.waiting()), (1, 1, (0, 0)));
        let mut tensor = Given::of(7);
        put(&files, 1, &mut tensor);
        put(&files, 2, &mut tensor);
        assert_eq!((tensor.copies, told.lock().len(), files.waiting()), (0, 3, (0, 0)), "written of the tensor itself");
        let inode = |name: &str| std::fs::metadata(directory.path().join(name)).unwrap().ino();
        assert_eq!(inode("1.npy"), inode("2.npy"), "equal ones still share a file");
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
        (0..10).for_each(|_| files.writers.speed.written(1, Duration::MAX));
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
                let mut queue = self.1.writers.queue.lock();
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
        assert_eq!(files.writers.queue.lock().reserved, 0);
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
        let written = trainmon_tensor_files::read_one(&directory.path().join("1.npy")).unwrap();
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
        Arc::get_mut(&mut files.writers).unwrap().done = Box::new(done);
        std::fs::remove_dir(place).unwrap();
        put(&files, 9, &mut Given::of(9));
        assert_eq!((&*told.lock(), files.writers.queue.lock().running.len()), (&vec![(Hole(9), true)], WRITERS));
    }

    #[test]
    fn a_free_writer_is_given_the_tensor() {
        let directory = tempfile::tempdir().unwrap();
        let told = Arc::default();
        let files = behind(directory.path(), &told);
        // One waits for its twin, and a writer has nothing to do.
        files.writers.queue.lock().running.truncate(1);
        let mut tensor = Given::of(9);
        put(&files, 9, &mut tensor);
        assert_eq!(tensor.copies, 1);
    }
}
