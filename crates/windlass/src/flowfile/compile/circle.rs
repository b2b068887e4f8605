//! Finds circular dependencies of steps.

use windlass_core::StepDefinition;

/// Steps that wait for one another, with the first one repeated at the end. None if there is no circle.
pub(super) fn circle(steps: &[StepDefinition]) -> Option<Vec<usize>> {
    // Remove the steps that can run until none is left that can. Each remaining step waits for another
    // remaining one, so following these must lead back to a step already visited.
    let mut waiting: Vec<bool> = vec![true; steps.len()];
    while let Some(free) = (0..steps.len())
        .find(|index| waiting[*index] && !steps[*index].after.iter().any(|before| waiting[*before]))
    {
        waiting[free] = false;
    }
    let mut path = vec![waiting.iter().position(|waiting| *waiting)?];
    loop {
        let last = *path.last()?;
        let before = *steps[last].after.iter().find(|before| waiting[**before])?;
        if let Some(start) = path.iter().position(|index| *index == before) {
            path.drain(..start);
            path.push(before);
            // The order of execution is easier to read.
            path.reverse();
            return Some(path);
        }
        path.push(before);
    }
}
