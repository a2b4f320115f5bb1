//! Norms of a training that never was: log-normal with memory, or with the heavy tail of Student's t, on a level that falls
//! like a training's, with spikes of known size and place. From a fixed seed, the same everywhere.

/// A generator of uniform and normal numbers (`SplitMix64`, Box and Muller).
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// In (0, 1].
    fn uniform(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 1.0) / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Student's t with three degrees of freedom.
    fn student(&mut self) -> f64 {
        let normal = self.normal();
        let squares: f64 = (0..3).map(|_| self.normal().powi(2)).sum();
        normal / (squares / 3.0).sqrt()
    }

    fn below(&mut self, end: u64) -> u64 {
        (self.uniform() * end as f64).ceil() as u64 - 1
    }
}

/// `steps` norms: `memory` is the correlation of neighbours' logarithms, `scatter` their deviation.
pub(crate) fn norms(chance: &mut Chance, steps: usize, memory: f64, scatter: f64) -> Vec<f64> {
    let fresh = (1.0 - memory * memory).sqrt();
    let mut logarithm = 0.0;
    (0..steps)
        .map(|step| {
            logarithm = memory * logarithm + fresh * scatter * chance.normal();
            level(step) * f64::exp(logarithm)
        })
        .collect()
}

/// What the norms scatter around.
pub(crate) fn level(step: usize) -> f64 {
    0.25 + 2.0 * (-(step as f64) / 300.0).exp()
}

/// `steps` norms with a heavy tail: around the level by `scatter` times Student's t with three degrees of freedom. One in
/// 10,000 is above the level by 22 times the scatter, where a normal one would be by 3.7.
pub(crate) fn heavy_norms(chance: &mut Chance, steps: usize, scatter: f64) -> Vec<f64> {
    (0..steps).map(|step| level(step) * (1.0 + scatter * chance.student()).abs()).collect()
}

/// Makes so many steps of a series.
pub(crate) type Series = fn(&mut Chance, usize) -> Vec<f64>;

/// The kinds of series that spike rules are judged on, by name.
pub(crate) const SERIES: [(&str, Series); 5] = [
    ("quiet", |chance, steps| norms(chance, steps, 0.0, 0.1)),
    ("medium", |chance, steps| norms(chance, steps, 0.5, 0.2)),
    ("rough", |chance, steps| norms(chance, steps, 0.8, 0.35)),
    ("heavy", |chance, steps| heavy_norms(chance, steps, 0.1)),
    ("heavier", |chance, steps| heavy_norms(chance, steps, 0.2)),
];

/// A spike: the step it begins in, and its factor. The next step keeps half of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spike {
    pub(crate) step: usize,
    pub(crate) factor: f64,
}

/// Puts spikes of these factors, one after the other, into a series from step 1,000 on, some 450 steps apart.
pub(crate) fn with_spikes(chance: &mut Chance, norms: &[f64], factors: &[f64]) -> (Vec<f64>, Vec<Spike>) {
    let (mut series, mut spikes) = (norms.to_vec(), Vec::new());
    let mut step = 1_000;
    while step + 5 < series.len() {
        let factor = factors[spikes.len() % factors.len()];
        series[step] *= factor;
        series[step + 1] *= 1.0 + (factor - 1.0) / 2.0;
        spikes.push(Spike { step, factor });
        step += 400 + chance.below(101) as usize;
    }
    (series, spikes)
}
