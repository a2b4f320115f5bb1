//! The page: that of the live page, with its data in it.

use trainmon_history::HeatMap;

use super::error::PlotError;
use crate::rank_history::RankHistory;

/// What a page may take: it is opened from a disk, and mailed.
const MOST_BYTES: usize = 20 << 20;

/// Kinds whose maps are looked at first; others follow as they come.
const INTERESTING: [&str; 8] =
    ["grad_unreduced", "grad_reduced", "update_ratio", "actv", "actv_grad", "param_updated", "exp_avg_sq", "exp_avg"];
/// Statistics, the most telling first.
const STATISTICS: [&str; 3] = ["norm", "absmax", "zeros"];

/// The page of a rank. Heat maps that find no room are left out, the least interesting ones first, which is said.
pub(super) fn page(history: &RankHistory, warnings: &mut Vec<String>) -> Result<String, PlotError> {
    let mut document = history.document();
    let failed = |source| PlotError::Data { source };
    let mut bytes = serde_json::to_string(&document).map_err(failed)?.len();
    let mut left_out = Vec::new();
    for (kind, statistic) in maps_by_interest(history) {
        let Some(map) = history.history.heat_map(&kind, &statistic, 0).filter(has_values) else { continue };
        let length = serde_json::to_string(&map).map_err(failed)?.len();
        if bytes + length > MOST_BYTES {
            left_out.push(format!("{statistic} of {kind}"));
            continue;
        }
        bytes += length;
        document.heat_maps.push(map);
    }
    if !left_out.is_empty() {
        let shown = trainmon_report::first_of(left_out.iter().map(String::as_str), 5);
        warnings.push(format!("heat maps beyond {} MiB are left out: {shown}", MOST_BYTES >> 20));
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
            // Numbers measured in place of statistics are as telling as a norm.
            let of_statistic = if of_statistic == STATISTICS.len() { 0 } else { of_statistic };
            maps.push((of_statistic, of_kind, kind.name.clone(), statistic));
        }
    }
    maps.sort_by_key(|(of_statistic, of_kind, ..)| (*of_statistic, *of_kind));
    maps.into_iter().map(|(.., kind, statistic)| (kind, statistic)).collect()
}
