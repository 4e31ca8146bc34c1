"""Writes a ROS 2 recording of three seconds: joints at 100 Hz, and a camera's JPEGs at 20 Hz.

    make_joints.py OUT
"""

import io
import math
import sys

from mcap_ros2.writer import Writer
from PIL import Image

BREAK = "=" * 80
HEADER = (f"{BREAK}\nMSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n"
          f"{BREAK}\nMSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n")
JOINTS = ("std_msgs/Header header\nstring[] name\nfloat64[] position\nfloat64[] velocity\n"
          f"float64[] effort\n{HEADER}")
PICTURE = f"std_msgs/Header header\nstring format\nuint8[] data\n{HEADER}"
START = 1_700_000_000_000_000_000


def head(time):
    return {"stamp": {"sec": time // 10**9, "nanosec": time % 10**9}, "frame_id": "base"}


def jpeg(number):
    """A picture of its own for each number."""
    out = io.BytesIO()
    Image.linear_gradient("L").resize((64, 48)).rotate(number).convert("RGB").save(out, "JPEG")
    return out.getvalue()


with open(sys.argv[1], "wb") as file:
    writer = Writer(file)
    joints = writer.register_msgdef("sensor_msgs/msg/JointState", JOINTS)
    picture = writer.register_msgdef("sensor_msgs/msg/CompressedImage", PICTURE)
    for step in range(300):
        time = START + step * 10_000_000
        angles = [math.sin(step / 40 + joint) for joint in range(6)]
        writer.write_message("/joint_states", joints, {
            "header": head(time), "name": [f"joint{joint}" for joint in range(6)],
            "position": angles, "velocity": [angle / 2 for angle in angles], "effort": []}, time)
        writer.write_message("/joint_commands", joints, {
            "header": head(time), "name": [], "position": [angle + 0.1 for angle in angles],
            "velocity": [], "effort": []}, time + 1_000_000)
        if step % 5 == 0:
            writer.write_message("/camera/image/compressed", picture, {
                "header": head(time), "format": "jpeg", "data": jpeg(step)}, time + 2_000_000)
    writer.finish()
