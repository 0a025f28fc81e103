// SPDX-License-Identifier: MIT
// A view of a Store in which every key starts with a prefix.
#pragma once

#include <memory>
#include <string>

#include <ddprun/store.h>

namespace ddprun {

/// Key k of the view is key "prefix/k" of `store`, as in PyTorch; views nest.
DDPRUN_API std::shared_ptr<Store> with_prefix(std::shared_ptr<Store> store, std::string prefix);

}  // namespace ddprun
