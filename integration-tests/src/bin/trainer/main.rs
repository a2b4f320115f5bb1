//! A small real training, watched by the monitor: the program that the end-to-end tests start.
//!
//! It prints `step N loss X` once each step is over, at the end `final loss X`, `parameters H` (a hash of their bits) and
//! the monitor's closing account. It exits with 0 whenever the training succeeded, whatever became of the monitor.

#![expect(clippy::print_stdout, reason = "this is a program; standard output is what the tests read")]

mod model;

use std::collections::VecDeque;
use std::io::stdin;
use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use tch::nn::{self, VarStore};
use tch::{Device, Kind};
use trainmon_agent::{Monitor, Options, Report};
use trainmon_tch::{Optimizer, Watch};

use model::{Tower, examples, layers, parameter_hash};

const MICRO_BATCHES: u32 = 2;
const LEARNING_RATE: f64 = 1e-2;
/// What a loss is multiplied by that is to stand out.
const SPIKE: f64 = 1e3;

/// Trains a small network, watched by the monitor.
#[derive(Debug, Parser)]
struct Arguments {
    /// Optimizer steps to make
    #[arg(long, default_value_t = 20)]
    steps: u64,
    /// The monitor's config file
    #[arg(long, required_unless_present = "no_monitor")]
    config: Option<PathBuf>,
    /// Where output goes if the config does not say
    #[arg(long)]
    out: Option<PathBuf>,
    /// Run ahead of the files by so many steps at most
    #[arg(long)]
    lead: Option<usize>,
    /// Wait, after this step, for a line (or the end) of standard input; may be given more than once
    #[arg(long)]
    pause_after: Vec<u64>,
    /// Leave right after this step, as Python's `os._exit` does
    #[arg(long)]
    leave_after: Option<u64>,
    /// Multiply the loss of this step by a thousand
    #[arg(long)]
    spike_at: Option<u64>,
    /// Train without a monitor
    #[arg(long)]
    no_monitor: bool,
    /// Seed of the first parameters
    #[arg(long, default_value_t = 7)]
    seed: i64,
    /// Layers of the network, each with a weight and a bias
    #[arg(long, default_value_t = 2)]
    layers: usize,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    // One thread: the tests run several trainings at once.
    tch::set_num_threads(1);
    tch::manual_seed(arguments.seed);
    let vs = VarStore::new(Device::Cpu);
    let layers = layers(&vs, arguments.layers);
    let optimizer = Optimizer::new(&nn::AdamW::default(), &vs, LEARNING_RATE)?;
    let watch = arguments.monitor().and_then(|monitor| {
        let watch = Watch::builder(monitor).model(&vs).grad_acc_steps(MICRO_BATCHES).build();
        watch.inspect_err(|error| println!("not watched: {error}")).ok()
    });
    let tower = Tower::new(layers, watch.as_ref());
    let (loss, watch) = train(&arguments, &tower, optimizer, watch)?;
    println!("final loss {loss:?}");
    println!("parameters {:016x}", parameter_hash(&vs)?);
    if let Some(watch) = watch {
        print_account(&watch.finish());
    }
    Ok(())
}

impl Arguments {
    fn monitor(&self) -> Option<Monitor> {
        let config = self.config.as_ref().filter(|_| !self.no_monitor)?;
        Some(Monitor::open(config, Options { output_dir: self.out.clone(), ..Options::default() }))
    }
}

/// Gives back the loss of the last step, and the watch.
fn train(
    arguments: &Arguments,
    tower: &Tower,
    mut optimizer: Optimizer,
    mut watch: Option<Watch>,
) -> Result<(f64, Option<Watch>)> {
    let mut loss = f64::NAN;
    let mut lead = arguments.lead.map(Lead::new);
    for step in 0..arguments.steps {
        optimizer.zero_grad()?;
        loss = 0.0;
        for micro_batch in 0..MICRO_BATCHES {
            let (inputs, targets) = examples(step * u64::from(MICRO_BATCHES) + u64::from(micro_batch));
            let error = tower.forward(&inputs) - targets;
            let factor = if arguments.spike_at == Some(step) { SPIKE } else { 1.0 };
            let share = factor * error.square().mean(Kind::Float) / f64::from(MICRO_BATCHES);
            share.f_backward()?;
            loss += share.f_double_value(&[])?;
        }
        match &mut watch {
            Some(watch) => {
                watch.loss(loss);
                watch.step(&mut optimizer)?;
                if let Some(lead) = &mut lead {
                    lead.wait(watch.monitor());
                }
            }
            None => optimizer.step()?,
        }
        println!("step {step} loss {loss:?}");
        if arguments.leave_after == Some(step) {
            leave_at_once();
        }
        if arguments.pause_after.contains(&step) {
            let _nothing_at_the_end = stdin().read_line(&mut String::new())?;
        }
    }
    Ok((loss, watch))
}

/// What keeps the training from running ahead of its files, however busy the machine is.
struct Lead {
    most_steps: usize,
    /// What had been offered after each of the last steps.
    offered: VecDeque<u64>,
}

impl Lead {
    fn new(most_steps: usize) -> Self {
        Self { most_steps, offered: VecDeque::new() }
    }

    /// After a step: waits until the steps before the lead are in every file.
    fn wait(&mut self, monitor: &Monitor) {
        self.offered.push_back(monitor.report().counts.offered);
        if self.offered.len() <= self.most_steps {
            return;
        }
        let due = self.offered.pop_front();
        let settled = || monitor.report().sinks.iter().map(|sink| sink.counts.exported + sink.counts.failed).min();
        while settled().is_some_and(|settled| Some(settled) < due) {
            std::thread::yield_now();
        }
    }
}

/// Nothing is closed and nobody is waited for.
#[expect(unsafe_code, reason = "the library has no safe word for it")]
fn leave_at_once() -> ! {
    // SAFETY: it takes a number and does not return.
    unsafe { libc::_exit(0) }
}

/// Once for people, once in figures.
fn print_account(report: &Report) {
    println!("{report}");
    println!("report balances {}", report.balances());
    let counts = &report.counts;
    println!(
        "counts observed={} not_sampled={} offered={} accepted={} dropped={} bytes_read={}",
        counts.observed,
        counts.not_sampled,
        counts.offered,
        counts.accepted,
        counts.dropped.iter().sum::<u64>(),
        report.cost.bytes_read
    );
    for sink in &report.sinks {
        let counts = &sink.counts;
        println!(
            "sink {} accepted={} exported={} failed={} abandoned={} dropped={}",
            sink.name, counts.accepted, counts.exported, counts.failed, counts.abandoned, counts.dropped
        );
        for place in &sink.locations {
            println!("place {} {place}", sink.name);
        }
    }
}
