package call

import (
	"maps"

	"github.com/agentteams/team-server/internal/identity"
)

// permissions holds what a caller of each method needs, on every binding. A method that is not listed
// needs all permissions. Methods check further what depends on the request, such as the account.
var permissions = map[string]identity.Permissions{
	// A2AService
	"SendMessage":                      identity.PermissionCall,
	"SendStreamingMessage":             identity.PermissionCall,
	"GetTask":                          identity.PermissionRead,
	"ListTasks":                        identity.PermissionRead,
	"CancelTask":                       identity.PermissionCall,
	"SubscribeToTask":                  identity.PermissionRead,
	"CreateTaskPushNotificationConfig": identity.PermissionCall,
	"GetTaskPushNotificationConfig":    identity.PermissionRead,
	"ListTaskPushNotificationConfigs":  identity.PermissionRead,
	"DeleteTaskPushNotificationConfig": identity.PermissionCall,
	"GetExtendedAgentCard":             identity.PermissionRead,
	// HTTP only: the card of an agent, and a part of a task
	"AgentCard": 0,
	"GetPart":   identity.PermissionRead,
	// AgentService
	"Info":          identity.PermissionRead,
	"Process":       identity.PermissionCall,
	"ProcessStream": identity.PermissionCall,
	"Cancel":        identity.PermissionCall,
	"HealthCheck":   identity.PermissionRead,
	// TeamService
	"CreateTeam":    identity.PermissionManage,
	"GetTeam":       identity.PermissionRead,
	"ListTeams":     identity.PermissionRead,
	"UpdateTeam":    identity.PermissionManage,
	"DeleteTeam":    identity.PermissionManage,
	"GetTeamStatus": identity.PermissionRead,
	// RegistryService
	"RegisterAgent":   identity.PermissionManage,
	"GetAgent":        identity.PermissionRead,
	"ListAgents":      identity.PermissionRead,
	"UpdateAgent":     identity.PermissionManage,
	"UnregisterAgent": identity.PermissionManage,
	// MonitorService
	"FindTasks":      identity.PermissionRead,
	"RetryTask":      identity.PermissionCall,
	"WatchTeam":      identity.PermissionRead,
	"WatchTask":      identity.PermissionRead,
	"GetTrace":       identity.PermissionRead,
	"ListQuestions":  identity.PermissionRead,
	"AnswerQuestion": identity.PermissionAnswer,
	"ListCosts":      identity.PermissionRead,
	// CollaborationService
	"StartCollaboration":     identity.PermissionCall,
	"GetCollaborationStatus": identity.PermissionRead,
	"ListCollaborations":     identity.PermissionRead,
	"PauseCollaboration":     identity.PermissionCall,
	"ResumeCollaboration":    identity.PermissionCall,
	"StopCollaboration":      identity.PermissionCall,
	// BoardService
	"AddWorkItem":      identity.PermissionCall,
	"GetWorkItem":      identity.PermissionRead,
	"ListWorkItems":    identity.PermissionRead,
	"UpdateWorkItem":   identity.PermissionCall,
	"ClaimWorkItem":    identity.PermissionCall,
	"CompleteWorkItem": identity.PermissionCall,
	"FailWorkItem":     identity.PermissionCall,
	"CancelWorkItem":   identity.PermissionCall,
	"PostMessage":      identity.PermissionCall,
	"ListMessages":     identity.PermissionRead,
	"AckMessages":      identity.PermissionCall,
	// AccountService
	"SetAccountLimits": identity.PermissionAdmin,
	"GetAccount":       identity.PermissionRead,
	"ListAccounts":     identity.PermissionAdmin,
	// KeyService
	"CreateKey": identity.PermissionAdmin,
	"ListKeys":  identity.PermissionAdmin,
	"RevokeKey": identity.PermissionAdmin,
	// AuditService
	"ListAudit":   identity.PermissionAdmin,
	"VerifyAudit": identity.PermissionAdmin,
	// HaltService
	"Halt":      identity.PermissionHalt,
	"Resume":    identity.PermissionHalt,
	"ListHalts": identity.PermissionHalt,
}

// needs returns the permissions that a caller of a method needs.
func needs(method string) identity.Permissions {
	if p, ok := permissions[method]; ok {
		return p
	}
	return identity.EveryPermission
}

// MethodPermissions returns what a caller of each method needs, by the name of the method.
func MethodPermissions() map[string]identity.Permissions { return maps.Clone(permissions) }
