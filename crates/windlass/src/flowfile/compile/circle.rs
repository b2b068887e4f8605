//! Steps of a flow that wait for one another.

use windlass_core::StepDefinition;

/// Steps that wait for one another, the first of them again at the end, if there are such.
pub(super) fn circle(steps: &[StepDefinition]) -> Option<Vec<usize>> {
    // Take away what can run until nothing more can. Each step that is left waits for one that is left as well,
    // so following these must come back to one that was met before.
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
            // People read a circle in the order things would run.
            path.reverse();
            return Some(path);
        }
        path.push(before);
    }
}
