package a2av03

import (
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// cardVersion is what cards say: all of the number.
const cardVersion = "0.3.0"

// Bindings, as cards of both versions name them.
const (
	bindingRPC  = "JSONRPC"
	bindingREST = "HTTP+JSON"
)

// WriteCard renders a card as both versions: what 1.0 wants, and beside it what
// 0.3 wants. Readers of either ignore the other's. A card that offers nothing
// over HTTP is written as the one of 1.0. Its signatures are those of the card of
// 1.0: who verifies them drops the fields that 1.0 does not know.
func WriteCard(card *a2av1.AgentCard) ([]byte, error) {
	b, err := wire.Marshal(card)
	if err != nil {
		return nil, err
	}
	at := interfaces(card)
	if len(at) == 0 {
		return b, nil
	}
	s := &structpb.Struct{}
	if err := wire.Unmarshal(b, s); err != nil {
		return nil, err
	}
	o := object(s.GetFields())
	o["url"], o["preferredTransport"] = at[0]["url"], at[0]["transport"]
	o["additionalInterfaces"] = list(each(at, object.value))
	o.text("protocolVersion", cardVersion)
	o["supportsAuthenticatedExtendedCard"] = structpb.NewBoolValue(card.GetCapabilities().GetExtendedAgentCard())
	o.list("security", each(card.GetSecurityRequirements(), requirement))
	addSchemes(s.GetFields()["securitySchemes"].GetStructValue(), card.GetSecuritySchemes())
	for i, skill := range s.GetFields()["skills"].GetListValue().GetValues() {
		object(skill.GetStructValue().GetFields()).list("security", each(card.GetSkills()[i].GetSecurityRequirements(), requirement))
	}
	return render(o)
}

// interfaces returns those of 0.3 that exist because those of 1.0 do, in the same
// order. Their URLs name the tenant.
func interfaces(card *a2av1.AgentCard) []object {
	var list []object
	for _, i := range card.GetSupportedInterfaces() {
		if b := i.GetProtocolBinding(); b == bindingRPC || b == bindingREST {
			list = append(list, object{"url": structpb.NewStringValue(i.GetUrl()), "transport": structpb.NewStringValue(b)})
		}
	}
	return list
}

func requirement(r *a2av1.SecurityRequirement) *structpb.Value {
	o := object{}
	for name, scopes := range r.GetSchemes() {
		o[name] = list(each(scopes.GetList(), structpb.NewStringValue))
	}
	return o.value()
}

// addSchemes says of each scheme what it is in the words of 0.3, those of OpenAPI.
func addSchemes(to *structpb.Struct, schemes map[string]*a2av1.SecurityScheme) {
	for name, s := range schemes {
		o := object(to.GetFields()[name].GetStructValue().GetFields())
		switch k := s.GetScheme().(type) {
		case *a2av1.SecurityScheme_ApiKeySecurityScheme:
			o.text("type", "apiKey")
			o.text("in", k.ApiKeySecurityScheme.GetLocation())
			o.text("name", k.ApiKeySecurityScheme.GetName())
			o.text("description", k.ApiKeySecurityScheme.GetDescription())
		case *a2av1.SecurityScheme_HttpAuthSecurityScheme:
			o.text("type", "http")
			o.text("scheme", k.HttpAuthSecurityScheme.GetScheme())
			o.text("bearerFormat", k.HttpAuthSecurityScheme.GetBearerFormat())
			o.text("description", k.HttpAuthSecurityScheme.GetDescription())
		case *a2av1.SecurityScheme_Oauth2SecurityScheme:
			o.text("type", "oauth2")
			o.text("description", k.Oauth2SecurityScheme.GetDescription())
			o.text("oauth2MetadataUrl", k.Oauth2SecurityScheme.GetOauth2MetadataUrl())
			o["flows"] = o["oauth2SecurityScheme"].GetStructValue().GetFields()["flows"]
		case *a2av1.SecurityScheme_OpenIdConnectSecurityScheme:
			o.text("type", "openIdConnect")
			o.text("openIdConnectUrl", k.OpenIdConnectSecurityScheme.GetOpenIdConnectUrl())
			o.text("description", k.OpenIdConnectSecurityScheme.GetDescription())
		case *a2av1.SecurityScheme_MtlsSecurityScheme:
			o.text("type", "mutualTLS")
			o.text("description", k.MtlsSecurityScheme.GetDescription())
		}
	}
}

// ReadCard reads a card of 1.0, of 0.3 or of both. What it offers over 0.3 comes
// behind what it offers otherwise, as interfaces of that version.
func ReadCard(b []byte) (*a2av1.AgentCard, error) {
	card := &a2av1.AgentCard{}
	if err := wire.Unmarshal(b, card); err != nil {
		return nil, err
	}
	n, err := parse(RPC, b)
	if err != nil {
		return nil, err
	}
	version := n.text("protocolVersion")
	if version == "" && len(card.GetSupportedInterfaces()) == 0 {
		version = cardVersion
	}
	if !n.has("url") || version == "" {
		return card, n.fault
	}
	add := func(url, binding string) {
		for _, i := range card.GetSupportedInterfaces() {
			if i.GetUrl() == url && i.GetProtocolBinding() == binding && i.GetProtocolVersion() == version {
				return
			}
		}
		card.SupportedInterfaces = append(card.SupportedInterfaces, &a2av1.AgentInterface{Url: url, ProtocolBinding: binding, ProtocolVersion: version})
	}
	preferred := n.text("preferredTransport")
	if preferred == "" {
		preferred = bindingRPC
	}
	add(n.text("url"), preferred)
	for _, i := range n.objects("additionalInterfaces") {
		add(i.text("url"), i.text("transport"))
	}
	return card, n.fault
}
