// Who owns the extension, and GRANT and REVOKE on its objects.
//
// The statements are texts, since the server offers no other way; each name in them is quoted and qualified here. They run
// in the name of the owner, so inside a Session.
#pragma once

#include <string>

#include "pg/postgres.hpp"

namespace ratelimit::pg {

// Whether the current user is the extension's owner, a member of that role, or a superuser.
[[nodiscard]] bool may_administer();

[[nodiscard]] bool role_exists(const char *name);
// Whether it is the role that owns the extension.
[[nodiscard]] bool role_is_owner(const char *name);

// As texts for statements.
[[nodiscard]] std::string quoted_name(const char *name);
[[nodiscard]] std::string qualified_routine(Oid routine);

// Until the end of the transaction nobody else passes this: two changes of one object's privileges at once would fail.
void lock_privileges();

// GRANT or REVOKE.
void run_privilege_statement(const std::string &statement);

} // namespace ratelimit::pg
