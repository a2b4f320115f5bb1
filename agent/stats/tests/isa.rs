//! Every instruction set gives the same answer. Alone in its process: the choice is the process's.

mod common;

use common::tensors;
use proptest::prelude::*;
use trainmon_core::{Reading, Statistic, StatisticSet};
use trainmon_stats::{Isa, Request, measure};

/// NaN is NaN, and the sign of a zero extreme is nobody's.
fn same(a: &Reading, b: &Reading) -> bool {
    let bits = |value: f64| if value.is_nan() { f64::NAN.to_bits() } else { (value + 0.0).to_bits() };
    Statistic::ALL.iter().all(|&statistic| bits(a.value(statistic)) == bits(b.value(statistic)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn instruction_sets_agree_bit_for_bit(tensor in tensors()) {
        let request = Request { statistics: Statistic::ALL.into_iter().collect::<StatisticSet>(), eps: 1e-3 };
        Isa::force(Some(Isa::Portable));
        let portable = measure(&tensor.view(), request);
        for isa in Isa::available() {
            Isa::force(Some(isa));
            let other = measure(&tensor.view(), request);
            prop_assert!(same(&portable, &other), "{:?}: {:?} for {:?}", isa, other, portable);
        }
        Isa::force(None);
    }
}
