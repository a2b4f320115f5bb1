//! The names of the numbers in records. They are stored in the file, so that a trainmon with longer or reordered lists
//! can read it.

use serde::{Deserialize, Serialize};
use trainmon_core::{DropReason, Dtype, Kind, Phase, Statistic};

/// The names, each list in the order of its numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredNames {
    kinds: Vec<String>,
    dtypes: Vec<String>,
    statistics: Vec<String>,
    phases: Vec<String>,
    drop_reasons: Vec<String>,
}

impl StoredNames {
    /// This version's numbers: indices in the lists `ALL`.
    pub(super) fn current() -> Self {
        fn names<T: Copy>(all: &[T], name: impl Fn(T) -> &'static str) -> Vec<String> {
            all.iter().map(|&value| name(value).to_owned()).collect()
        }
        Self {
            kinds: names(&Kind::ALL, Kind::name),
            dtypes: names(&Dtype::ALL, Dtype::torch_name),
            statistics: names(&Statistic::ALL, Statistic::name),
            phases: names(&Phase::ALL, Phase::name),
            drop_reasons: names(&DropReason::ALL, DropReason::name),
        }
    }
}

/// The meaning of the numbers of one file. `None`: a name that this version does not know.
#[derive(Clone, Debug)]
pub(super) struct NumberNames {
    kinds: Vec<Option<Kind>>,
    dtypes: Vec<Option<Dtype>>,
    statistics: Vec<Option<Statistic>>,
    /// One per phase in the file.
    pub(super) phases: Vec<Option<Phase>>,
    /// One per reason in the file.
    pub(super) drop_reasons: Vec<Option<DropReason>>,
}

impl NumberNames {
    /// The meaning of the numbers in the file that contains `names`.
    pub(super) fn of(names: &StoredNames) -> Self {
        fn meanings<T>(names: &[String], from_name: impl Fn(&str) -> Option<T>) -> Vec<Option<T>> {
            names.iter().map(|name| from_name(name)).collect()
        }
        let StoredNames { kinds, dtypes, statistics, phases, drop_reasons } = names;
        Self {
            kinds: meanings(kinds, Kind::from_name),
            dtypes: meanings(dtypes, Dtype::from_torch_name),
            statistics: meanings(statistics, Statistic::from_name),
            phases: meanings(phases, |name| Phase::ALL.into_iter().find(|phase| phase.name() == name)),
            drop_reasons: meanings(drop_reasons, |name| DropReason::ALL.into_iter().find(|why| why.name() == name)),
        }
    }

    pub(super) fn kind(&self, code: u8) -> Option<Kind> {
        self.kinds.get(usize::from(code)).copied().flatten()
    }

    pub(super) fn dtype(&self, code: u8) -> Option<Dtype> {
        self.dtypes.get(usize::from(code)).copied().flatten()
    }

    pub(super) fn statistic(&self, code: u8) -> Option<Statistic> {
        self.statistics.get(usize::from(code)).copied().flatten()
    }
}

/// The number of a kind.
pub(super) fn kind_code(kind: Kind) -> u8 {
    kind as u8
}

/// The number of a dtype.
pub(super) fn dtype_code(dtype: Dtype) -> u8 {
    dtype as u8
}

/// The number of a statistic.
pub(super) fn statistic_code(statistic: Statistic) -> u8 {
    statistic as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_leads_back_to_its_meaning() {
        let number_names = NumberNames::of(&StoredNames::current());
        for kind in Kind::ALL {
            assert_eq!(number_names.kind(kind_code(kind)), Some(kind));
        }
        for dtype in Dtype::ALL {
            assert_eq!(number_names.dtype(dtype_code(dtype)), Some(dtype));
        }
        for statistic in Statistic::ALL {
            assert_eq!(number_names.statistic(statistic_code(statistic)), Some(statistic));
        }
        assert_eq!((number_names.kind(200), number_names.dtype(200), number_names.statistic(200)), (None, None, None));
    }

    #[test]
    fn a_file_with_its_lists_in_another_order_is_understood() {
        let mut names = StoredNames::current();
        names.kinds.insert(0, "not_invented_yet".to_owned());
        let number_names = NumberNames::of(&names);
        assert_eq!(number_names.kind(0), None);
        assert_eq!(number_names.kind(1), Some(Kind::ALL[0]));
    }
}
