//! Columns: guessed, named, missing.

use super::{PLANTED, Workspace, begun, pairs, table};

#[test]
fn a_column_that_is_named_goes_before_one_that_is_guessed() {
    let workspace = Workspace::with("a.csv", table("n,ce,size", ","));
    let said = workspace.alerts(&["a.csv"]);
    assert_eq!((said.code, said.out.as_str()), (Some(2), ""));
    assert!(said.err.contains("error: no rule applies to `a.csv`: they judge loss, gradient norm"), "{}", said.err);
    assert!(said.err.contains("hint: name a column with `--loss` or `--grad-norm`: `n`, `ce`, `size`"), "{}", said.err);
    let (report, code) = workspace.json(&["a.csv", "--loss", "ce", "--grad-norm", "size", "--step", "n"]);
    assert_eq!((begun(&report), code), (pairs(&PLANTED), Some(1)));
    assert_eq!(report["log"]["columns"]["loss"]["is_guessed"], false);
}

#[test]
fn without_a_step_the_rows_are_counted_and_that_is_said() {
    let workspace = Workspace::with("a.csv", table("epoch,loss,grad_norm", ","));
    let said = workspace.alerts(&["a.csv"]);
    assert!(said.out.starts_with("Spike: loss is 2.9 times its usual value at step 150 "), "{}", said.out);
    assert!(said.err.contains("step: the number of the row, from 1 (name a column with --step)"), "{}", said.err);
}

#[test]
fn a_loss_of_other_data_is_taken_only_where_there_is_no_other_and_that_is_said() {
    let workspace = Workspace::with("a.csv", table("step,eval_loss,loss", ","));
    let (report, _) = workspace.json(&["a.csv"]);
    assert_eq!(report["log"]["columns"]["loss"]["name"], "loss");
    workspace.write("b.csv", table("step,eval_loss,speed", ","));
    let said = workspace.alerts(&["b.csv"]);
    assert!(
        said.err.contains("warning: no training loss found: using `eval_loss`, which is measured on other data"),
        "{}",
        said.err
    );
}

#[test]
fn several_columns_that_may_be_the_loss_are_named() {
    let workspace = Workspace::with("a.csv", table("step,loss_a,loss_b", ","));
    let said = workspace.alerts(&["a.csv"]);
    assert!(
        said.err.contains(
            "warning: several columns look like the loss: using `loss_a`, not `loss_b` (override with --loss)"
        ),
        "{}",
        said.err
    );
    let (report, _) = workspace.json(&["a.csv", "--loss", "loss_b"]);
    assert_eq!(begun(&report), pairs(&[("Spike", 170)]));
}

#[test]
fn a_name_that_is_not_there_is_an_error_with_the_nearest() {
    let workspace = Workspace::with("a.csv", table("step,loss,grad_norm", ","));
    let said = workspace.alerts(&["a.csv", "--loss", "los"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("error: `a.csv` has no column `los`: found `step`, `loss`, `grad_norm`"), "{}", said.err);
    assert!(said.err.contains("hint: did you mean `loss`?"), "{}", said.err);
    let said = workspace.alerts(&["a.csv", "--step", "grad_norm"]);
    assert!(said.err.contains("error: `a.csv`: column `grad_norm` holds no steps: "), "{}", said.err);
    workspace.write("b.csv", "step,loss,note\n1,2.5,good\n2,2.4,bad\n");
    let said = workspace.alerts(&["b.csv", "--loss", "note"]);
    assert!(said.err.contains("column `note` holds no number: the first cell is `good` in row 2"), "{}", said.err);
}

#[test]
fn a_table_without_names_has_numbers_for_names() {
    let table = table("", ",");
    let workspace = Workspace::with("a.csv", table.trim_start());
    let (report, code) = workspace.json(&["a.csv", "--step", "1", "--loss", "2", "--grad-norm", "3"]);
    assert_eq!((begun(&report), code), (pairs(&PLANTED), Some(1)));
    assert_eq!(report["log"]["steps"], 200, "the first row is one of numbers");
    assert!(report["warnings"].to_string().contains("no header row"));
}
