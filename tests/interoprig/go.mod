module github.com/agentteams/team-server/tests/interoprig

go 1.26.0
