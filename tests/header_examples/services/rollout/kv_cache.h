// What the usage examples in services/rollout/kv_cache leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_KV_CACHE_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_KV_CACHE_H_

#include <string>
#include <vector>

namespace tandem::rollout::block_manager_example {
extern int64_t num_blocks, block_size, policy_version;
extern std::string model, salt;
extern std::vector<int32_t> prompt, tokens_of_block;
extern BlockHash parent;
}  // namespace tandem::rollout::block_manager_example

namespace tandem::rollout::routed_prefixes_example {
extern int64_t num_blocks;
extern BlockHash hash;
extern std::vector<uint16_t> experts_of_block;
inline constexpr header_examples::AnyFunction Append;
}  // namespace tandem::rollout::routed_prefixes_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_SERVICES_ROLLOUT_KV_CACHE_H_
