//! Tables of ranks merged, and spreadsheets read back, against those of the real msprobe.

use std::fs;
use std::path::{Path, PathBuf};

use calamine::{Data, Reader as _, Xlsx, open_workbook};
use tempfile::tempdir;

use crate::small::{dump, listed, put, trainmon};

/// Every sheet's name and cells.
fn sheets(path: &Path) -> Vec<(String, Vec<Vec<Data>>)> {
    let mut workbook: Xlsx<_> = open_workbook(path).unwrap();
    let names = workbook.sheet_names();
    let mut cells = |name: &str| workbook.worksheet_range(name).unwrap().rows().map(<[Data]>::to_vec).collect();
    names.into_iter().map(|name| (name.clone(), cells(&name))).collect()
}

fn only(directory: &Path) -> PathBuf {
    let names = listed(directory);
    assert_eq!(names.len(), 1, "{names:?}");
    directory.join(&names[0])
}

/// Whole numbers come as integers or floats, as the writer liked; msprobe's writer keeps 16 digits of a number, ours 17.
fn same(one: &Data, other: &Data) -> bool {
    let number = |data: &Data| match data {
        Data::Int(value) => Some(*value as f64),
        Data::Float(value) => Some(*value),
        _ => None,
    };
    match (number(one), number(other)) {
        (Some(one), Some(other)) => format!("{one:.15e}") == format!("{other:.15e}"),
        _ => one == other,
    }
}

fn assert_same(ours: &Path, theirs: &Path) -> usize {
    let mut cells = 0;
    let (ours, theirs) = (sheets(ours), sheets(theirs));
    let names = |sheets: &[(String, Vec<Vec<Data>>)]| sheets.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&ours), names(&theirs));
    for ((name, ours), (_, theirs)) in ours.iter().zip(&theirs) {
        assert_eq!(ours.len(), theirs.len(), "rows of {name}");
        for (row, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
            assert_eq!(ours.len(), theirs.len(), "{name} row {row}");
            for (column, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
                assert!(same(ours, theirs), "{name} row {row} column {column}: {ours:?}, msprobe has {theirs:?}");
                cells += 1;
            }
        }
    }
    cells
}

#[test]
fn msprobes_spreadsheets_are_merged_as_msprobe_does() {
    let Some(root) = crate::recorded::golden("", "msprobe's merged tables") else { return };
    let workspace = tempdir().unwrap();
    let recorded = root.join("07_tools/merge_result");
    let config = recorded.join("merge.yaml").display().to_string();
    for extension in ["xlsx", "csv"] {
        let input = workspace.path().join(format!("in_{extension}"));
        for rank in 0..2 {
            let table = root.join(format!("04_compare/dist_weight1_stat/compare_result_rank{rank}.{extension}"));
            put(&input.join(format!("compare_result_rank{rank}_20260102030405.{extension}")), fs::read(table).unwrap());
        }
        let output = format!("out_{extension}");
        let arguments = ["merge_result", "-i", &input.display().to_string(), "-o", &output, "-config", &config];
        let said = trainmon(workspace.path(), &arguments);
        assert_eq!(said.code, Some(0), "{}", said.err);
        let merged = only(&workspace.path().join(&output));
        assert!(merged.file_name().unwrap().to_string_lossy().starts_with("multi_ranks_compare_merge_20"));
        assert!(assert_same(&merged, &recorded.join("multi_ranks_compare_merge.xlsx")) > 60);
    }
}

/// `--xlsx --compat` of every recorded comparison with a spreadsheet, numbers as numbers.
#[test]
fn spreadsheets_are_msprobes_cell_for_cell() {
    let Some(root) = crate::recorded::golden("", "msprobe's spreadsheets") else { return };
    let mut cells = 0;
    for case in ["eps_stat", "eps_md5", "eps_tensor", "dist_weight1_stat", "nan_stat", "nan_md5", "nan_tensor"] {
        let directory = root.join("04_compare").join(case);
        let readme = fs::read_to_string(directory.join("README.md")).unwrap();
        let path = |start: &str| {
            let line = readme.lines().find_map(|line| line.strip_prefix(start)).unwrap();
            root.join(line.split('`').nth(1).unwrap()).display().to_string()
        };
        let (target, golden) = (path("- target = "), path("- golden = "));
        let workspace = tempdir().unwrap();
        let arguments = ["compare", "-tp", &target, "-gp", &golden, "--xlsx", "--compat", "-o", "out"];
        let said = trainmon(workspace.path(), &arguments);
        assert_eq!(said.code, Some(0), "{case}: {}", said.err);
        for name in listed(&workspace.path().join("out")) {
            let (stem, _) = name.rsplit_once('_').unwrap();
            let theirs = directory.join(format!("{stem}.xlsx"));
            if theirs.exists() {
                cells += assert_same(&workspace.path().join("out").join(&name), &theirs);
            }
        }
    }
    println!("{cells} cells");
    assert!(cells > 20_000, "{cells}");
}

#[test]
fn a_value_that_cannot_be_compared_shows_both_maxima() {
    let workspace = tempdir().unwrap();
    let header = "NPU Name,Bench Name,Cosine,NPU max,Bench max\n";
    let rank = |number: u32, rows: &str| {
        put(&workspace.path().join(format!("in/compare_result_rank{number}.csv")), format!("{header}{rows}"));
    };
    rank(0, "a,a,N/A,tp-0-1-2-3,tp-0-1-2-3\nb,b,0.5,1,1\nab,ab,unsupported,1,2\n");
    rank(10, "a,a,1.0,1,1\nN/A,only,N/A,N/A,3\n");
    let merge = |more: &[&str]| {
        let said = trainmon(workspace.path(), &[&["merge", "-i", "in", "-o", "out", "--format", "csv"], more].concat());
        assert_eq!(said.code, Some(0), "{}", said.err);
        let text = fs::read_to_string(only(&workspace.path().join("out"))).unwrap();
        fs::remove_dir_all(workspace.path().join("out")).unwrap();
        text
    };
    let rows = ["a,NPU:tp-0-1-2-3  Bench:tp-0-1-2-3,1.0\n", "ab,NPU:1  Bench:2,\n", "b,0.5,\n"];
    let header = "NPU Name,rank0,rank10\n";
    assert_eq!(merge(&[]), format!("{header}{}only,,NPU:N/A  Bench:3\n", rows.concat()));
    assert_eq!(merge(&["--api", "a", "--column", "Cosine"]), format!("{header}{}", rows[..2].concat()));
}

#[test]
fn what_compare_writes_of_several_ranks_merges_and_what_is_wrong_is_told() {
    let workspace = tempdir().unwrap();
    for rank in 0..2 {
        dump(&workspace.path().join(format!("b/step0/rank{rank}/dump.json")), 1.0 + f64::from(rank));
        dump(&workspace.path().join(format!("a/step0/rank{rank}/dump.json")), 1.0);
    }
    trainmon(workspace.path(), &["compare", "b/step0", "a/step0", "-o", "in"]);
    let said = trainmon(workspace.path(), &["merge", "-i", "in", "-o", "out", "--column", "Result", "--format", "csv"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let text = fs::read_to_string(only(&workspace.path().join("out"))).unwrap();
    assert!(text.contains("\nFunctional.gelu.0.forward.output.0,pass,error\n"), "{text}");
    fs::remove_dir_all(workspace.path().join("out")).unwrap();
    let refused = |arguments: &[&str], says: &str| {
        let said = trainmon(workspace.path(), &[&["merge", "-o", "out", "-i"], arguments].concat());
        assert_eq!(said.code, Some(2), "{}", said.out);
        assert!(said.err.contains(says) && said.err.contains("\nhint: "), "{}", said.err);
        assert_eq!(listed(&workspace.path().join("out")), Vec::<String>::new());
    };
    refused(&["b"], "`b` has no `compare_result_rank");
    refused(&["nowhere"], "cannot read `nowhere`");
    refused(&["in", "--column", "Cosine"], "has no column `Cosine`");
    put(&workspace.path().join("merge.yaml"), "apis: [a]");
    refused(&["in", "-config", "merge.yaml"], "`merge.yaml` is not YAML of the form");
    put(&workspace.path().join("in/compare_result_rank1_20000101000000.csv"), "NPU Name\n");
    refused(&["in"], "have the same rank, 1");
    fs::remove_file(workspace.path().join("in/compare_result_rank1_20000101000000.csv")).unwrap();
    put(&workspace.path().join("in/compare_result_rank2_20000101000000.xlsx"), "no archive");
    refused(&["in"], "compare_result_rank2_20000101000000.xlsx`");
}
