// Ids of calls, which tell them apart within a conversation.
#ifndef TANDEM_COMMON_TOOL_CALLS_CALL_ID_H_
#define TANDEM_COMMON_TOOL_CALLS_CALL_ID_H_

#include <string>

#include "common/tool_calls/format.h"

namespace tandem::tool_calls {

// Draws one: "call_" and 24 characters, or 9 for formats with short ids; letters and digits.
std::string NewCallId(const Format& format);

}  // namespace tandem::tool_calls

#endif  // TANDEM_COMMON_TOOL_CALLS_CALL_ID_H_
