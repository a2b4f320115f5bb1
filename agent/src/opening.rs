//! The message at the start of a training: the measurements, the output locations and the next commands.

use std::fmt;
use std::path::Path;
use std::sync::atomic::Ordering;

use trainmon_core::config::{Activations, Config, Plan};
use trainmon_core::{Statistic, shell_word};

use crate::monitor::Monitor;
use crate::rank::Ranks;

impl Monitor {
    /// Logs the start of the training on the first rank, once: the measurements of `watched` of all `parameters` of the model,
    /// and the output locations. The closing report is then logged at shutdown.
    pub fn announce(&self, watched: usize, parameters: usize) {
        let inner = self.inner();
        let is_silent = inner.ranks.rank.0 != 0 || inner.fork.is_child() || !inner.is_running();
        if is_silent || inner.so_far.is_announced.swap(true, Ordering::Relaxed) {
            return;
        }
        let (plan, locations) = (self.plan(), self.locations());
        let (config, ranks) = (&inner.config, inner.ranks);
        let run = self.run_directory().map(|directory| directory.display().to_string());
        let opening = Opening { config, plan: &plan, ranks, locations: &locations, run, watched, parameters };
        inner.notices.info(opening.to_string());
    }
}

/// The output locations of each exporter, and the addresses of live control (`control`).
pub(crate) type Locations = [(&'static str, Vec<String>)];

/// The opening message. `Display` gives one line for the measurements, and one for each location.
pub(crate) struct Opening<'a> {
    pub(crate) config: &'a Config,
    /// The plan from the first step on.
    pub(crate) plan: &'a Plan,
    pub(crate) ranks: Ranks,
    pub(crate) locations: &'a Locations,
    /// The directory of the run, for all ranks.
    pub(crate) run: Option<String>,
    /// The number of parameters that the targets select.
    pub(crate) watched: usize,
    /// The number of the model's parameters.
    pub(crate) parameters: usize,
}

impl Opening<'_> {
    /// The measured subjects, without statistics and steps.
    fn subjects(&self) -> Vec<String> {
        let signals = &self.plan.signals;
        let of_parameters = [
            (signals.weight_grad.is_some(), "weight gradients"),
            (signals.moments.is_some(), "moments"),
            (signals.param.is_some(), "parameters"),
            (signals.mg_direction.is_some(), "directions of gradients"),
            (signals.update.is_some(), "updates"),
        ];
        let named: Vec<&str> = of_parameters.into_iter().filter_map(|(is_on, name)| is_on.then_some(name)).collect();
        let mut subjects = Vec::new();
        if !named.is_empty() {
            let all = if self.watched == self.parameters { String::new() } else { format!("{} of ", self.watched) };
            let noun = if self.parameters == 1 { "parameter" } else { "parameters" };
            subjects.push(format!("{} of {all}{} {noun}", named.join(", "), self.parameters));
        }
        subjects.extend(signals.activations.as_ref().map(|wanted| activations(wanted).to_owned()));
        let others = [
            (self.config.features.is_some(), "features of modules"),
            (self.config.collectives.is_some(), "collective operations"),
            (self.config.print_struct, "the structure of the model, then stops"),
            (self.config.stack_info, "the call stacks of modules"),
        ];
        subjects.extend(others.into_iter().filter(|(is_on, _)| *is_on).map(|(_, name)| name.to_owned()));
        subjects
    }

    /// The statistics of all signals, each once, in column order.
    fn statistics(&self) -> String {
        let signals = &self.plan.signals;
        let activations = signals.activations.as_ref().map(|wanted| &wanted.signal);
        let gradients = signals.weight_grad.as_ref().map(|wanted| &wanted.signal);
        let others = [&signals.moments, &signals.param, &signals.mg_direction, &signals.update];
        let on = gradients.into_iter().chain(others.into_iter().flatten()).chain(activations);
        let mut names: Vec<&str> = Vec::new();
        for name in on.flat_map(|signal| &signal.ops).copied().map(Statistic::name) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.join(" ")
    }

    /// Whether the live page is served; its address is the first.
    fn has_page(&self) -> bool {
        self.config.prometheus.as_ref().is_some_and(|page| page.page)
    }

    fn place(&self, name: &str) -> Option<&str> {
        let (_, places) = self.locations.iter().find(|(exporter, _)| *exporter == name)?;
        places.first().map(String::as_str)
    }
}

impl fmt::Display for Opening<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subjects = self.subjects();
        if subjects.is_empty() {
            write!(f, "measures nothing")?;
        } else {
            write!(f, "measures {}", subjects.join(", "))?;
            let statistics = self.statistics();
            if !statistics.is_empty() {
                write!(f, "; {statistics}")?;
            }
            write!(f, "; {}", self.plan.window)?;
            if self.plan.paused {
                write!(f, ", once `dynamic_on` is true")?;
            }
        }
        if !self.plan.ranks.is_empty() {
            let ranks: Vec<String> = self.plan.ranks.iter().map(ToString::to_string).collect();
            let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
            write!(f, "; on {noun} {} of {}", ranks.join(", "), self.ranks.world_size)?;
        } else if self.ranks.world_size > 1 {
            write!(f, "; on each of {} ranks", self.ranks.world_size)?;
        }
        if let Some(run) = &self.run {
            write!(f, "\n  files: {run}")?;
        }
        for (exporter, places) in self.locations {
            // Outputs in the run's directory are not listed one by one.
            let is_in_run =
                |place: &&String| self.run.as_ref().is_none_or(|run| !Path::new(place.as_str()).starts_with(run));
            let elsewhere: Vec<&str> = places.iter().filter(is_in_run).map(String::as_str).collect();
            let what = if *exporter == "prometheus" { "page" } else { exporter };
            if !elsewhere.is_empty() && *exporter != "control" {
                write!(f, "\n  {what}: {}", elsewhere.join(", "))?;
            }
        }
        if let Some(target) =
            self.place("prometheus").filter(|_| self.has_page()).or(self.place("csv").and(self.run.as_deref()))
        {
            write!(f, "\n  to watch it: trainmon top {}", shell_word(target))?;
        }
        if let Some(run) = self.run.as_ref().filter(|_| self.place("csv").is_some()) {
            write!(f, "\n  to compare it with another run: trainmon compare {} OTHER_RUN", shell_word(run))?;
        }
        match (self.place("control"), &self.run) {
            (None, _) => Ok(()),
            (Some(_), Some(run)) => write!(f, "\n  to query its status: trainmon ctl {} status", shell_word(run)),
            (Some(way), None) if way.starts_with("http://") => write!(f, "\n  live control: {way}"),
            (Some(way), None) => {
                write!(f, "\n  to query its status: trainmon ctl --socket {} status", shell_word(way))
            }
        }
    }
}

fn activations(wanted: &Activations) -> &'static str {
    match (wanted.forward, wanted.backward) {
        (true, true) => "inputs and outputs of modules and their gradients",
        (true, false) => "inputs and outputs of modules",
        (false, _) => "gradients of modules' inputs and outputs",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(config: &str, watched: usize, run: Option<&str>, locations: &Locations) -> String {
        let config = Config::parse(config, "test", &|_| None).unwrap().config;
        let plan = Plan::of(&config);
        let (ranks, run) = (Ranks::SINGLE, run.map(str::to_owned));
        Opening { config: &config, plan: &plan, ranks, locations, run, watched, parameters: 148 }.to_string()
    }

    #[test]
    fn the_first_line_says_what_of_what_and_when() {
        for (config, watched, line) in [
            (
                r#"{"wg_distribution": true, "mv_distribution": true, "param_distribution": true, "ops": ["min", "norm"]}"#,
                148,
                "measures weight gradients, moments, parameters of 148 parameters; min norm; every step",
            ),
            (
                r#"{"wg_distribution": true, "step_interval": 10, "start_step": 100, "stop_step": 200}"#,
                12,
                "measures weight gradients of 12 of 148 parameters; norm; one step in 10 from step 100 on before step 200",
            ),
            (
                r#"{"xy_distribution": true, "forward_only": true, "collect_times": 5}"#,
                148,
                "measures inputs and outputs of modules; norm; every step, 5 at most",
            ),
            (
                r#"{"update": true, "module_ranks": [0, 3]}"#,
                148,
                "measures updates of 148 parameters; norm; every step; on ranks 0, 3 of 1",
            ),
            ("{}", 148, "measures nothing"),
        ] {
            assert_eq!(said(config, watched, None, &[]), line, "{config}");
        }
    }

    #[test]
    fn every_place_is_named_with_the_commands_that_read_it() {
        let places = [
            ("csv", vec!["out/run/rank_0".to_owned()]),
            ("journal", vec!["/disk/run.journal".to_owned()]),
            ("prometheus", vec!["http://127.0.0.1:9464/".to_owned(), "http://127.0.0.1:9464/metrics".to_owned()]),
            ("control", vec!["out/run/control.sock".to_owned(), "out/run/control.json".to_owned()]),
        ];
        let lines = said("{}", 148, Some("out/run"), &places);
        let expected = "measures nothing\n  files: out/run\n  journal: /disk/run.journal\n  page: http://127.0.0.1:9464/, http://127.0.0.1:9464/metrics\n  \
                        to watch it: trainmon top out/run\n  \
                        to compare it with another run: trainmon compare out/run OTHER_RUN\n  \
                        to query its status: trainmon ctl out/run status";
        assert_eq!(lines, expected);
        let lines = said(r#"{"page": true}"#, 148, Some("out/run"), &places);
        assert!(lines.contains("\n  to watch it: trainmon top http://127.0.0.1:9464/\n"), "{lines}");
        let lines = said("{}", 148, None, &places[3..]);
        assert_eq!(lines, "measures nothing\n  to query its status: trainmon ctl --socket out/run/control.sock status");
        let lines = said("{}", 148, Some("my out/run"), &places);
        assert!(lines.contains("\n  files: my out/run\n"), "{lines}");
        assert!(lines.contains(" trainmon compare 'my out/run' OTHER_RUN\n"), "{lines}");
        assert!(lines.ends_with(" trainmon ctl 'my out/run' status"), "{lines}");
    }
}
