#include "job.h"

#include <sstream>
#include <unistd.h>

namespace gf_emulator {

namespace {

bool read_order(std::istringstream& words, Order& order) {
    std::string kind;
    std::uint64_t seed = 0;
    words >> kind;
    if (kind == "forward")
        order = Order(Order::Kind::forward, 0);
    else if (kind == "reverse")
        order = Order(Order::Kind::reverse, 0);
    else if (kind == "seeded" && words >> seed)
        order = Order(Order::Kind::seeded, seed);
    else
        return false;
    return true;
}

bool read_buffer(std::istringstream& words, std::vector<BufferSpec>& buffers) {
    BufferSpec buffer;
    std::string role, fill;
    words >> buffer.name >> role >> buffer.bytes >> fill;
    buffer.is_input = role == "input";
    buffer.is_output = role == "output";
    if (fill == "poison") {
        buffer.fill = BufferSpec::Fill::poison;
        words >> buffer.poison;
    } else if (fill == "zero")
        buffer.fill = BufferSpec::Fill::zero;
    else if (fill == "reserved")
        buffer.fill = BufferSpec::Fill::reserved;
    else if (fill == "image") {
        buffer.fill = BufferSpec::Fill::image;
        words >> buffer.image;
    } else if (fill == "copy") {
        buffer.fill = BufferSpec::Fill::copy;
        words >> buffer.copied;
        if (words.fail() || buffer.copied >= buffers.size()) return false;
    } else
        return false;
    const bool complete = !words.fail();
    if (!(words >> buffer.owned)) buffer.owned = -1;
    buffers.push_back(buffer);
    return complete;
}

bool read_launch(std::istringstream& words, std::vector<LaunchSpec>& launches) {
    LaunchSpec launch;
    words >> launch.entry >> launch.grid.x >> launch.grid.y >> launch.grid.z >> launch.block.x >>
        launch.block.y >> launch.block.z >> launch.dynamic_bytes >> launch.cluster.x >> launch.cluster.y >>
        launch.cluster.z;
    launches.push_back(launch);
    return !words.fail();
}

// BUFFER RANK ELEMENT_BYTES SWIZZLE_BYTES FILL_NAN ELEMENT_TYPE IN_LOCAL_MEMORY, then sizes, strides and box.
bool read_tensor_map(std::istringstream& words, EmulatedTensorMap& map, int& buffer) {
    bool in_local_memory = false;
    words >> buffer >> map.rank >> map.element_bytes >> map.swizzle_bytes >> map.fill_nan >> map.element_type >>
        in_local_memory;
    if (words.fail() || map.rank < 1 || map.rank > most_tensor_map_axes) return false;
    for (unsigned axis = 0; axis < most_tensor_map_axes; axis++) map.sizes[axis] = map.box[axis] = 1;
    for (unsigned axis = 0; axis < map.rank; axis++) words >> map.sizes[axis];
    for (unsigned axis = 1; axis < map.rank; axis++) words >> map.strides_bytes[axis - 1];
    for (unsigned axis = 0; axis < map.rank; axis++) words >> map.box[axis];
    map.tag = in_local_memory ? copied_tensor_map_tag : tensor_map_tag;
    return !words.fail() && buffer >= 0;
}

// HEXADECIMAL COUNT, then OFFSET BUFFER for each pointer in it; COUNT, then OFFSET and a map's words for each map.
bool read_packed(std::istringstream& words, ArgumentSpec& argument) {
    std::string digits;
    std::size_t count = 0;
    words >> digits >> count;
    if (words.fail() || digits.empty() || digits.size() % 2) return false;
    for (std::size_t at = 0; at < digits.size(); at += 2)
        argument.packed.push_back((unsigned char)(std::stoul(digits.substr(at, 2), nullptr, 16)));
    for (; count > 0; count--) {
        ArgumentSpec::Pointer pointer{};
        words >> pointer.offset >> pointer.buffer;
        if (words.fail() || pointer.offset + sizeof(void*) > argument.packed.size()) return false;
        argument.pointers.push_back(pointer);
    }
    for (words >> count; count > 0 && !words.fail(); count--) {
        ArgumentSpec::Map map{};
        int buffer = -1;
        words >> map.offset;
        if (!read_tensor_map(words, map.value, buffer) || map.offset + sizeof map.value > argument.packed.size())
            return false;
        map.buffer = std::size_t(buffer);
        argument.maps.push_back(map);
    }
    return !words.fail();
}

bool read_argument(std::istringstream& words, std::vector<ArgumentSpec>& arguments) {
    ArgumentSpec argument;
    std::string kind;
    words >> kind;
    argument.is_tensor_map = kind == "tensor_map";
    argument.is_pointer = kind == "pointer" || kind == "null" || argument.is_tensor_map;
    if (kind == "pointer")
        words >> argument.buffer >> argument.value;
    else if (kind == "scalar")
        words >> argument.value;
    else if (kind == "packed") {
        if (!read_packed(words, argument)) return false;
    } else if (argument.is_tensor_map ? !read_tensor_map(words, argument.tensor_map, argument.buffer) : kind != "null")
        return false;
    arguments.push_back(argument);
    return !words.fail();
}

bool read_sample(std::istringstream& words, LaunchSpec& launch) {
    const std::uint64_t clusters = std::uint64_t(launch.grid.x / launch.cluster.x) *
                                   (launch.grid.y / launch.cluster.y) * (launch.grid.z / launch.cluster.z);
    for (std::uint64_t number; words >> number;) {
        if (number >= clusters) return false;
        launch.sample.push_back(number);
    }
    return words.eof() && !launch.sample.empty();
}

bool read_run_line(const std::string& word, std::istringstream& words, RunSpec& run) {
    if (word == "order") return read_order(words, run.order);
    if (word == "count") return bool(words >> run.count);
    if (word == "check") return bool(words >> run.check);
    if (word == "undefined") return bool(words >> run.undefined);
    if (word == "outputs") return bool(words >> run.outputs);
    if (word == "deadline_s") return bool(words >> run.deadline_s);
    if (word == "buffer") return read_buffer(words, run.buffers);
    if (word == "align" && !run.buffers.empty()) return bool(words >> run.buffers.back().alignment);
    if (word == "launch") return read_launch(words, run.launches);
    if (word == "argument") return read_argument(words, run.arguments);
    if (word == "own_arguments" && !run.launches.empty()) return run.launches.back().own_arguments = true;
    if (word == "launch_argument" && !run.launches.empty())
        return read_argument(words, run.launches.back().arguments);
    if (word == "resident" && !run.launches.empty()) return bool(words >> run.launches.back().resident_blocks);
    if (word == "sample" && !run.launches.empty()) return read_sample(words, run.launches.back());
    return false;
}

}  // namespace

bool read_job(int descriptor, Job& job) {
    std::string text;
    char part[4096];
    ssize_t count;
    while ((count = read(descriptor, part, sizeof part)) > 0) text.append(part, std::size_t(count));
    return count == 0 && parse_job(text, job);
}

bool parse_job(const std::string& text, Job& job) {
    std::istringstream lines(text);
    std::string line, word;
    while (std::getline(lines, line)) {
        std::istringstream words(line);
        words >> word;
        if (word == "module")
            words >> job.module_path;
        else if (word == "run") {
            job.runs.emplace_back();
            words >> job.runs.back().index;
        } else if (job.runs.empty() || !read_run_line(word, words, job.runs.back()))
            return false;
    }
    return !job.module_path.empty() && !job.runs.empty();
}

}  // namespace gf_emulator
