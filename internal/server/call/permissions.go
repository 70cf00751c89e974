package call

import (
	"maps"

	"github.com/agentteams/team-server/pkg/a2a"
)

// permissions holds what a caller of each method needs, on every binding. A method that is not listed
// needs all permissions. Methods check further what depends on the request, such as the account.
var permissions = map[string]a2a.Permissions{
	// A2AService
	"SendMessage":                      a2a.PermissionCall,
	"SendStreamingMessage":             a2a.PermissionCall,
	"GetTask":                          a2a.PermissionRead,
	"ListTasks":                        a2a.PermissionRead,
	"CancelTask":                       a2a.PermissionCall,
	"SubscribeToTask":                  a2a.PermissionRead,
	"CreateTaskPushNotificationConfig": a2a.PermissionCall,
	"GetTaskPushNotificationConfig":    a2a.PermissionRead,
	"ListTaskPushNotificationConfigs":  a2a.PermissionRead,
	"DeleteTaskPushNotificationConfig": a2a.PermissionCall,
	"GetExtendedAgentCard":             a2a.PermissionRead,
	// HTTP only: the card of an agent, and a part of a task
	"AgentCard": 0,
	"GetPart":   a2a.PermissionRead,
	// AgentService
	"Info":          a2a.PermissionRead,
	"Process":       a2a.PermissionCall,
	"ProcessStream": a2a.PermissionCall,
	"Cancel":        a2a.PermissionCall,
	"HealthCheck":   a2a.PermissionRead,
	// TeamService
	"CreateTeam":    a2a.PermissionManage,
	"GetTeam":       a2a.PermissionRead,
	"ListTeams":     a2a.PermissionRead,
	"UpdateTeam":    a2a.PermissionManage,
	"DeleteTeam":    a2a.PermissionManage,
	"GetTeamStatus": a2a.PermissionRead,
	// RegistryService
	"RegisterAgent":   a2a.PermissionManage,
	"GetAgent":        a2a.PermissionRead,
	"ListAgents":      a2a.PermissionRead,
	"UpdateAgent":     a2a.PermissionManage,
	"UnregisterAgent": a2a.PermissionManage,
	// MonitorService
	"FindTasks":      a2a.PermissionRead,
	"RetryTask":      a2a.PermissionCall,
	"WatchTeam":      a2a.PermissionRead,
	"WatchTask":      a2a.PermissionRead,
	"GetTrace":       a2a.PermissionRead,
	"ListQuestions":  a2a.PermissionRead,
	"AnswerQuestion": a2a.PermissionAnswer,
	"ListCosts":      a2a.PermissionRead,
	// CollaborationService
	"StartCollaboration":     a2a.PermissionCall,
	"GetCollaborationStatus": a2a.PermissionRead,
	"ListCollaborations":     a2a.PermissionRead,
	"PauseCollaboration":     a2a.PermissionCall,
	"ResumeCollaboration":    a2a.PermissionCall,
	"StopCollaboration":      a2a.PermissionCall,
	// BoardService
	"AddWorkItem":      a2a.PermissionCall,
	"GetWorkItem":      a2a.PermissionRead,
	"ListWorkItems":    a2a.PermissionRead,
	"UpdateWorkItem":   a2a.PermissionCall,
	"ClaimWorkItem":    a2a.PermissionCall,
	"CompleteWorkItem": a2a.PermissionCall,
	"FailWorkItem":     a2a.PermissionCall,
	"CancelWorkItem":   a2a.PermissionCall,
	"PostMessage":      a2a.PermissionCall,
	"ListMessages":     a2a.PermissionRead,
	"AckMessages":      a2a.PermissionCall,
	// AccountService
	"SetAccountLimits": a2a.PermissionAdmin,
	"GetAccount":       a2a.PermissionRead,
	"ListAccounts":     a2a.PermissionAdmin,
	// KeyService
	"CreateKey": a2a.PermissionAdmin,
	"ListKeys":  a2a.PermissionAdmin,
	"RevokeKey": a2a.PermissionAdmin,
	// AuditService
	"ListAudit":   a2a.PermissionAdmin,
	"VerifyAudit": a2a.PermissionAdmin,
	// HaltService
	"Halt":      a2a.PermissionHalt,
	"Resume":    a2a.PermissionHalt,
	"ListHalts": a2a.PermissionHalt,
}

// needs returns the permissions that a caller of a method needs.
func needs(method string) a2a.Permissions {
	if p, ok := permissions[method]; ok {
		return p
	}
	return a2a.EveryPermission
}

// MethodPermissions returns what a caller of each method needs, by the name of the method.
func MethodPermissions() map[string]a2a.Permissions { return maps.Clone(permissions) }
