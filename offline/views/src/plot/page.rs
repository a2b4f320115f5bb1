//! The live page with a run's data embedded.

use trainmon_history::HeatMap;

use super::error::PlotError;
use crate::rank_history::RankHistory;

/// The largest size of a page: it is opened from disk and sent by mail.
const MOST_BYTES: usize = 20 << 20;

/// The kinds whose heat maps come first; other kinds follow in file order.
const INTERESTING: [&str; 8] =
    ["grad_unreduced", "grad_reduced", "update_ratio", "actv", "actv_grad", "param_updated", "exp_avg_sq", "exp_avg"];
/// The statistics of heat maps, the most informative first.
const STATISTICS: [&str; 3] = ["norm", "absmax", "zeros"];

/// The page of a rank. Heat maps that do not fit are omitted, the least interesting first, with a warning.
pub(super) fn page(history: &RankHistory, warnings: &mut Vec<String>) -> Result<String, PlotError> {
    page_within(MOST_BYTES, history, warnings)
}

fn page_within(most: usize, history: &RankHistory, warnings: &mut Vec<String>) -> Result<String, PlotError> {
    let mut document = history.document();
    let failed = |source| PlotError::Data { source };
    let mut bytes = serde_json::to_string(&document).map_err(failed)?.len();
    let mut left_out = Vec::new();
    for (kind, statistic) in maps_by_interest(history) {
        let Some(map) = history.history.heat_map(&kind, &statistic, 0).filter(has_values) else { continue };
        let length = serde_json::to_string(&map).map_err(failed)?.len();
        if bytes + length > most {
            left_out.push(format!("{statistic} of {kind}"));
            continue;
        }
        bytes += length;
        document.heat_maps.push(map);
    }
    if !left_out.is_empty() {
        let shown = trainmon_report::first_of(left_out.iter().map(String::as_str), 5);
        warnings.push(format!("heat maps omitted because the page would exceed {most} bytes: {shown}"));
    }
    let data = serde_json::to_string(&document).map_err(failed)?;
    Ok(trainmon_web::page_with_data(&data))
}

fn has_values(map: &HeatMap) -> bool {
    map.values.iter().any(|&value| value != trainmon_history::ABSENT)
}

fn maps_by_interest(history: &RankHistory) -> Vec<(String, String)> {
    let kinds = history.overview().tables.kinds;
    let rank = |name: &str, of: &[&str]| of.iter().position(|known| *known == name).unwrap_or(of.len());
    let mut maps: Vec<(usize, usize, String, String)> = Vec::new();
    for kind in kinds {
        for statistic in kind.statistics {
            let (of_statistic, of_kind) = (rank(&statistic, &STATISTICS), rank(&kind.name, &INTERESTING));
            // Named numbers that replace statistics rank like a norm.
            let of_statistic = if of_statistic == STATISTICS.len() { 0 } else { of_statistic };
            maps.push((of_statistic, of_kind, kind.name.clone(), statistic));
        }
    }
    maps.sort_by_key(|(of_statistic, of_kind, ..)| (*of_statistic, *of_kind));
    maps.into_iter().map(|(.., kind, statistic)| (kind, statistic)).collect()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use trainmon_history::Limits;
    use trainmon_runs::steps::{RankChoice, RecordedRun};

    use super::*;

    #[test]
    fn maps_that_find_no_room_are_left_out_the_least_telling_first_and_named() {
        let directory = tempfile::tempdir().unwrap();
        let mut rows = "vpp_stage,name,step,norm,absmax,zeros,shape,dtype\n".to_owned();
        for step in 0..20 {
            for tensor in 0..50 {
                writeln!(rows, "0,layers.{tensor}.weight,{step},1.5,1.0,0.5,\"[2, 2]\",torch.float32").unwrap();
            }
        }
        for kind in ["grad_reduced", "exp_avg"] {
            std::fs::write(directory.path().join(format!("{kind}_0-99.csv")), &rows).unwrap();
        }
        let run = RecordedRun::open(directory.path(), RankChoice::First).unwrap();
        let history = RankHistory::read(&run.ranks[0], Limits::default(), &mut |_| {}).unwrap();
        let mut warnings = Vec::new();
        let whole = page(&history, &mut warnings).unwrap();
        assert_eq!((whole.matches("\"layer_of\":[0").count(), warnings.len()), (6, 0));
        let most = serde_json::to_string(&history.document()).unwrap().len() + 20_000;
        let smaller = page_within(most, &history, &mut warnings).unwrap();
        let kept = smaller.matches("\"layer_of\":[0").count();
        assert!((1..6).contains(&kept), "{kept}");
        assert!(smaller.len() < trainmon_web::RUN_PAGE.len() + most + 1_000);
        assert!(warnings[0].ends_with("zeros of exp_avg"), "{warnings:?}");
        assert!(smaller.contains(r#""kind":"grad_reduced","statistic":"norm""#), "the most telling stays");
    }
}
