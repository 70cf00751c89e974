module github.com/agentteams/team-server/tests/night

go 1.26.0

require github.com/agentteams/team-server/tests/interoprig v0.0.0

replace github.com/agentteams/team-server/tests/interoprig => ../interoprig
