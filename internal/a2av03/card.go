package a2av03

import (
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// cardVersion is the protocolVersion of cards, with the patch number.
const cardVersion = "0.3.0"

// Names of the bindings in cards of both versions.
const (
	bindingRPC  = "JSONRPC"
	bindingREST = "HTTP+JSON"
)

// WriteCard encodes a card for both versions: the fields of 1.0 and of 0.3 side by side.
// Readers of one version ignore the fields of the other. A card without HTTP interfaces is
// encoded for 1.0 only. The signatures are those of the 1.0 card; a verifier drops fields
// that 1.0 does not define.
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

// interfaces returns the 0.3 interfaces of a card, one for each HTTP interface of 1.0, in
// the same order. Their URLs include the tenant.
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

// addSchemes adds to each security scheme its fields in 0.3, which are those of OpenAPI.
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

// ReadCard decodes a card of 1.0, of 0.3 or of both. Interfaces of 0.3 are appended to
// those of 1.0 and have that version.
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
