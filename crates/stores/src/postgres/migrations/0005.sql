-- States, flows and inputs are written in format 4 from here on, which servers that know no exclusive queues cannot read.
UPDATE windlass_meta SET probed = probed;
